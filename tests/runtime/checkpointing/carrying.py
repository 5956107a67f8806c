"""A training in attempts, and what each of them says on stderr: for tests of what a loop carries."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import torch
from torch import nn

import rankup
from ranks import run_ranks


class Stopped(Exception):
    """In place of a kill."""


def begin(directory: str) -> tuple[rankup.Run, Any, Any]:
    run = rankup.init(snapshots=rankup.Snapshots(directory=directory, every="1 steps", asynchronous=False))
    data = rankup.ResidentData(torch.arange(16.0).reshape(8, 2))
    model, opt, _ = run.prepare(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.001), data, global_batch=2)
    return run, model, opt


def step(run: rankup.Run, model: Any, opt: Any, batch: torch.Tensor, stop: int) -> float:
    loss = model(batch).square().mean()
    opt.zero_grad()
    run.backward(loss)
    run.step(opt)
    if run.global_step == stop:
        raise Stopped
    return loss.item()


def said(train: Any, directory: str, stop: int = -1) -> str:
    """What rank 0 says on stderr."""
    stream = io.StringIO()
    with contextlib.redirect_stderr(stream), contextlib.suppress(Stopped):
        train(directory, stop)
    return stream.getvalue()


def attempts(train: Any, directory: Path, stops: tuple[int, ...], ranks: int = 1) -> list[list[str]]:
    """What each rank says in each attempt."""
    return [run_ranks(said, ranks, train, str(directory), stop) for stop in stops]
