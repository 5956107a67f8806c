"""A training for ``test_stop_requests.py``: it asks itself to stop, in the phase and the way that it is told to.

    python stoppable.py FOLDER "PHASE HOW"        as "evaluation signal"; "" to go through to the end

Each step's loss and, in the end, the weights' digest go to ``FOLDER/rank-R.jsonl``.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn

import rankup
from rankup.runtime.checkpointing import stop
from rankup.runtime.digest import digest

EPOCHS, SAMPLES, BATCH = 10, 40, 4
stop.AGREE_EVERY_S = 0.0  # at every step: a step here takes a few milliseconds
folder = Path(sys.argv[1])
phase, _, how = sys.argv[2].rpartition(" ")
asked = False


def ask(here: str) -> None:
    """Request the stop, if this is where; and give signals the moment that they take to go around."""
    global asked
    if asked or here != phase:
        return
    asked = True
    if how == "file" and run.world.is_main:
        (Path(os.environ["RANKUP_RUN_DIR"]) / "STOP").write_text("user 0\n")
    elif how == "group":  # the rank and its loader workers
        os.killpg(os.getpgrp(), signal.SIGTERM)
    elif how == "runner" and run.world.is_main:
        os.kill(int((folder / "runner").read_text()), signal.SIGTERM)
    time.sleep(0.3)


class Points(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((3,), float(index)) + random.random()


def note(**fields: object) -> None:
    with (folder / f"rank-{run.world.rank}.jsonl").open("a") as file:
        file.write(json.dumps(fields) + "\n")


run = rankup.init(seed=3, snapshots=rankup.Snapshots(every="off"))
with rankup.first():
    ask("download")
net = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.3), nn.Linear(8, 1))
model, opt, data = run.prepare(
    net, lambda p: torch.optim.Adam(p, lr=0.01), Points(), global_batch=BATCH, num_workers=4
)
schedule = torch.optim.lr_scheduler.StepLR(opt, 1, gamma=0.9)
run.register(schedule=schedule)
run.forget("asked", "steps")  # of one attempt: when it is to ask
steps = 0
for epoch in run.epochs(EPOCHS, data):
    for x in epoch:
        ask("first batch")
        if steps == 2:
            ask("training")
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        steps += 1
        note(step=run.global_step + 1, loss=loss.item().hex())
    schedule.step()
    for _ in run.batches(Points(), global_batch=8, num_workers=2):
        ask("evaluation")
    ask("behind the evaluation")
note(ended=digest(run._context.models[0].state_dict()))
