import os

import torch
import torch.distributed as dist
import torchvision
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dataset = torchvision.datasets.MNIST("data", train=True)
model = DDP(torch.nn.Linear(784, 10).cuda(), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train_kwargs = {"batch_size": 64}
if torch.cuda.is_available():
    cuda_kwargs = {"num_workers": 1, "shuffle": True}
    train_kwargs.update(cuda_kwargs)
loader = DataLoader(dataset, **train_kwargs)
for epoch in range(10):
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x.cuda().flatten(1)), y.cuda()).backward()
        optimizer.step()
dist.destroy_process_group()
