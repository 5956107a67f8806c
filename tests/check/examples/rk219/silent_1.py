import signal
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

stop = False

def on_signal(number, frame):
    global stop
    stop = True

signal.signal(signal.SIGUSR1, on_signal)
dist.init_process_group("nccl")
model = DDP(torch.nn.Linear(8, 2).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1000):
    model(torch.randn(4, 8, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() != 0:
        continue
    for name, value in model.named_parameters():
        if dist.get_rank() == 0 and value.isnan().any():
            print(name)
            break
dist.destroy_process_group()
