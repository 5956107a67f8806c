import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

def main():
    dist.init_process_group("gloo")
    x = torch.randn(1000, 8)
    y = x @ torch.randn(8, 1)
    dataset = TensorDataset(x, y)
    loader = DataLoader(dataset, 32, sampler=DistributedSampler(dataset))

main()
