import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

def main(net, dataset):
    dist.init_process_group("nccl")
    model = DDP(net)
    loader = DataLoader(dataset, batch_size=32, sampler=DistributedSampler(dataset))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

main(None, [])
