"""A regression with one srun task per GPU; ranks come from SLURM."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def setup():
    rank = int(os.environ["SLURM_PROCID"])
    world_size = int(os.environ["SLURM_NTASKS"])
    local_rank = int(os.environ["SLURM_LOCALID"])
    dist.init_process_group("nccl", init_method="env://", rank=rank, world_size=world_size)
    torch.cuda.set_device(local_rank)
    return rank, world_size, local_rank


def main():
    rank, world_size, local_rank = setup()
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(4096, 16, generator=generator)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    sampler = DistributedSampler(data, num_replicas=world_size, rank=rank, shuffle=True)
    loader = DataLoader(data, batch_size=64, sampler=sampler, num_workers=4)

    model = DistributedDataParallel(torch.nn.Linear(16, 1).cuda(), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * world_size)
    for epoch in range(20):
        sampler.set_epoch(epoch)
        total = torch.zeros(2, device="cuda")
        for inputs, targets in loader:
            loss = F.mse_loss(model(inputs.cuda()), targets.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.stack([loss.detach() * len(inputs), torch.tensor(float(len(inputs))).cuda()])
        dist.all_reduce(total)
        if rank == 0:
            print(epoch, (total[0] / total[1]).item(), flush=True)
    if rank == 0:
        torch.save(model.module.state_dict(), "line.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
