import os
import torch.distributed as dist
from torchvision import datasets

def main():
    dist.init_process_group("nccl")
    rank = int(os.environ["LOCAL_RANK"])
    if rank != 0:
        dist.barrier()
    train = datasets.MNIST("data", train=True, download=True)
    if rank == 0:
        dist.barrier()

if __name__ == "__main__":
    main()
