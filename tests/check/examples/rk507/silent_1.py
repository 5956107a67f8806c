import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
model = FSDP(torch.nn.Linear(8, 2), sharding_strategy=ShardingStrategy.NO_SHARD)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 8)).sum().backward()
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
optimizer.step()
optimizer.zero_grad()
dist.destroy_process_group()
