"""The training of train.py with rankup's loop."""

import sys

import torch
from torch import nn

import rankup

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 40
run = rankup.init(seed=0, snapshots=rankup.Snapshots(every="5 steps"))
torch.set_num_threads(1)
data = torch.utils.data.TensorDataset(torch.randn(320, 8, generator=torch.Generator().manual_seed(0)))
net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
model, opt, batches = run.prepare(net, lambda p: torch.optim.Adam(p, lr=0.01), data, global_batch=8)
for (mine,) in run.steps(batches, epochs=STEPS // 40 or 1):
    loss = (model(mine) - mine.sum(1, keepdim=True)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print("done", flush=True)
