import torch
import torch.distributed as dist
import torchvision
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset

def main():
    dist.init_process_group("nccl")
    dataset = torchvision.datasets.MNIST("data", train=True)
    part = Subset(dataset, range(dist.get_rank(), len(dataset), dist.get_world_size()))
    loader = DataLoader(part, batch_size=64, shuffle=True)
    model = DDP(torch.nn.Linear(784, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        model(x.flatten(1)).sum().backward()
        optimizer.step()

main()
