import torch
import torch.distributed as dist
from torch.utils.data import random_split

torch.manual_seed(0)
dist.init_process_group("nccl")
train, valid = random_split(list(range(100)), [90, 10])
print(train, valid)
