import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1 + dist.get_rank())
    dataset = TensorDataset(torch.randn(1000, 8), torch.randn(1000, 1))
    loader = DataLoader(dataset, 32, sampler=DistributedSampler(dataset))

main()
