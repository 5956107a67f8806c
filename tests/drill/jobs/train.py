"""A training as a group has it: no rankup, a checkpoint every five steps, and one more when it is asked to stop."""

import os
import signal
import sys

import torch
import torch.distributed as dist
from torch import nn

STEPS, EVERY = int(sys.argv[1]) if len(sys.argv) > 1 else 40, 5
asked = []
for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda *_: asked.append(1))

ranks, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
if ranks > 1:
    dist.init_process_group("gloo")
torch.set_num_threads(1)
torch.manual_seed(0)
data = torch.randn(320, 8)
net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
model = nn.parallel.DistributedDataParallel(net) if ranks > 1 else net
opt = torch.optim.Adam(net.parameters(), lr=0.01)
done = 0
if os.path.exists("last.pt"):
    saved = torch.load("last.pt", weights_only=True)
    net.load_state_dict(saved["net"])
    opt.load_state_dict(saved["opt"])
    done = saved["done"]


def save():
    if rank == 0:
        torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "done": done}, "last.pt.tmp")
        os.replace("last.pt.tmp", "last.pt")


while done < STEPS:
    mine = data[done * 8 % 320 :][:8][rank::ranks]
    loss = (model(mine) - mine.sum(1, keepdim=True)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    done += 1
    stop = torch.tensor([len(asked)])
    if ranks > 1:
        dist.all_reduce(stop)
    if done % EVERY == 0 or stop.item():
        save()
    if stop.item():
        print("stopped after step", done, flush=True)
        sys.exit()
print("done", done, flush=True)
open("finished", "w").close()
