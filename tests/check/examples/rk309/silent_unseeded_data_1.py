import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler, TensorDataset

def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    dataset = TensorDataset(torch.randn(1000, 8))
    sampler = DistributedSampler(dataset)

main()
