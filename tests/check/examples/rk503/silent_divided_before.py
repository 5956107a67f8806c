import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

def main(net, dataset, global_batch_size):
    dist.init_process_group("nccl")
    model = DDP(net)
    batch_size = global_batch_size // dist.get_world_size()
    return DataLoader(dataset, batch_size=batch_size, sampler=DistributedSampler(dataset))
