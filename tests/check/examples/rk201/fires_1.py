import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def setup():
    dist.init_process_group("nccl")
    return dist.get_rank(), dist.get_world_size()

def main():
    rank, world = setup()
    device = torch.device("cuda", rank)
    model = DDP(torch.nn.Linear(2, 2).to(device), device_ids=[rank])

if __name__ == "__main__":
    main()
