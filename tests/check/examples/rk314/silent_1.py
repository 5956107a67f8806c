import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def main(dataset, optimizer, epochs, batch_size):
    dist.init_process_group("nccl")
    loader = DataLoader(dataset, batch_size // dist.get_world_size(), sampler=DistributedSampler(dataset))
    steps = len(dataset) // batch_size * epochs
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)

main([], None, 3, 256)
