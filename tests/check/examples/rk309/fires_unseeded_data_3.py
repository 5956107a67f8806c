import torch
import torch.distributed as dist
from torch.utils.data import Dataset, DistributedSampler

class Toy(Dataset):
    def __init__(self, size):
        self.data = [(torch.rand(20), torch.rand(1)) for _ in range(size)]

def main():
    dist.init_process_group("gloo")
    dataset = Toy(2048)
    sampler = DistributedSampler(dataset)

main()
