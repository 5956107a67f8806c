import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main(rank, data):
    dist.init_process_group("nccl", rank=rank, world_size=2)
    model = DistributedDataParallel(torch.nn.BatchNorm1d(3).cuda())
    for x in data:
        model(x).sum().backward()
    dist.destroy_process_group()


if int(os.environ["LOCAL_RANK"]) == 0:  # one process per node trains; the others serve data
    main(int(os.environ["GROUP_RANK"]), [torch.ones(2, 3)])
