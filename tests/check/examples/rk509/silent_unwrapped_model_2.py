import torch.distributed as dist
from mymodel import build

dist.init_process_group("gloo")
model, optimizer = build()
for step in range(100):
    model(step).sum().backward()
    optimizer.step()
