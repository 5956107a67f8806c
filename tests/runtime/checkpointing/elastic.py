"""Trains a small network under any launcher: ``python elastic.py FOLDER``; what ``test_elastic.py`` kills.

While ``FOLDER/wait`` exists, ranks wait behind step 7; a rank whose number is in ``FOLDER/kill`` kills itself there,
once. Snapshots are taken every two steps.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

import rankup
from rankup.runtime.digest import digest

folder = Path(sys.argv[1])
snapshots = rankup.Snapshots(every="2 steps", directory=folder / "snapshots", asynchronous=False)
run = rankup.init(exact="any-world", snapshots=snapshots)
x = torch.linspace(-1, 1, 240).reshape(40, 6).sin()
net = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.2), nn.Linear(8, 1))
model, opt, data = run.prepare(
    net,
    lambda parameters: torch.optim.Adam(parameters, lr=0.05),
    rankup.ResidentData(x, x.sum(1, keepdim=True)),
    global_batch=4,
)
me = f"rank {run.world.rank} of {run.world.world_size}"
kill = folder / f"kill-{run.world.rank}"
for inputs, targets in run.steps(data, epochs=2):
    run.backward(F.mse_loss(model(inputs), targets))
    if not run.step(opt) or run.global_step + 1 < 7:
        continue
    print(f"{me}, process {os.getpid()}, is behind step {run.global_step + 1}.", flush=True)
    if kill.exists():
        kill.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    while (folder / "wait").exists() and not rankup.should_stop():
        time.sleep(0.02)
print(f"{me} ends with {digest(run._context.models[0].state_dict())}.", flush=True)
