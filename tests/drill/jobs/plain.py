"""A training as many tutorials have it: it saves in place, and hears no signal."""

import os

import torch
import torch.distributed as dist
from torch import nn

STEPS, EVERY = 40, 5
dist.init_process_group("gloo")
torch.manual_seed(0)
data = torch.randn(320, 8)
net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
model = nn.parallel.DistributedDataParallel(net)
opt = torch.optim.Adam(net.parameters(), lr=0.01)
done = 0
if os.path.exists("checkpoint.pt"):
    saved = torch.load("checkpoint.pt", weights_only=True)
    net.load_state_dict(saved["net"])
    opt.load_state_dict(saved["opt"])
    done = saved["done"]
while done < STEPS:
    mine = data[done * 8 % 320 :][:8][dist.get_rank() :: dist.get_world_size()]
    loss = (model(mine) - mine.sum(1, keepdim=True)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    done += 1
    if done % EVERY == 0 and dist.get_rank() == 0:
        torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "done": done}, "checkpoint.pt")
print("done", done, flush=True)
dist.destroy_process_group()
