import torch.distributed as dist
from torchvision import datasets

def main():
    dist.init_process_group("nccl")
    if dist.get_rank() == 0:
        datasets.MNIST("data", train=True, download=True)
    dist.barrier()
    return datasets.MNIST("data", train=True)

if __name__ == "__main__":
    main()
