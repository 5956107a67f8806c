import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

def main(x):
    model = torch.nn.Linear(4, 1)
    fully_shard(model)
    if dist.get_rank() == 0:
        print(model(x))
