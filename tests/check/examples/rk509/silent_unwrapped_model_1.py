import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = torch.ones(3)
dist.broadcast(x, 0)
print(x)
