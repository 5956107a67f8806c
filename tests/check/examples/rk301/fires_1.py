import torch
import torch.distributed as dist
import torchvision
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

def main():
    dist.init_process_group("nccl")
    torch.manual_seed(dist.get_rank())
    dataset = torchvision.datasets.MNIST("data", train=True)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=64, shuffle=True)
    model = DDP(torch.nn.Linear(784, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:
            model(x.flatten(1)).sum().backward()
            optimizer.step()

main()
