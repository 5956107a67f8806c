import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if dist.get_world_size() > 1:
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
