import torch
import torch.distributed as dist
from helper_that_is_not_here import choose

dist.init_process_group("nccl")
choose()
model = torch.nn.Linear(2, 2).cuda()
print(model)
