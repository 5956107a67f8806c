"""Pages 4 and 5: one layer learns a line. ``--pause`` makes a step as slow as that of a large model."""

from __future__ import annotations

import argparse
import time

import torch
from torch.nn import functional as F

import rankup

parser = argparse.ArgumentParser()
parser.add_argument("--pause", type=float, default=0.0, help="seconds per step")
args = parser.parse_args()

run = rankup.init(
    seed=1, precision="fp64", snapshots=rankup.Snapshots(every="50 steps", keep=rankup.Retention(last=3))
)
x = torch.randn(1000, 20)
line = torch.linspace(-2, 2, 20)[:, None]
model, opt, data = run.prepare(
    torch.nn.Linear(20, 1),
    lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    rankup.ResidentData(x, x @ line + 1),
    global_batch=30,
)
sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.9)
run.register(sched=sched)
values = run.register(loss=0.0)  # values.loss is in every snapshot

for epoch in run.epochs(10):
    for a, b in epoch:
        loss = F.mse_loss(model(a), b)
        run.backward(loss)
        run.step(opt)
        values.loss = run.mean(loss.item())
        time.sleep(args.pause)
    sched.step()
    run.log(loss=values.loss)
    run.print(f"epoch {epoch.index + 1}: loss {values.loss:.3f}")

run.print(f"weights {sum(p.detach().abs().sum().item() for p in model.parameters()):.3f}")
