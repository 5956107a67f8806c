"""The time of a step by part: data, compute, communication, optimizer.

Data is how long the loop waits for a batch. The other parts are timed in turns on one batch that is on the device
already: steps whose gradients are reduced against steps under ``no_sync`` (communication), and the optimizer alone. The
trained weights are useless afterwards.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager
from time import perf_counter
from typing import Any

import torch
from torch import nn

from rankup.core.records import RecordWriter
from rankup.core.rundir import RunDir
from rankup.runtime.api import Run
from rankup.train.optimizers import optimizer_for
from rankup.train.options import TrainOptions
from rankup.train.workload import Workload, ready_data

WARM_UP = 5
ROUNDS = 5
ROUND_S = 0.3  # seconds of a round of one kind of step, about
FEWEST, MOST = 3, 200  # steps per round


def breakdown(run: Run, workload: Workload, options: TrainOptions) -> dict[str, float]:
    """Seconds of one step by part, on rank 0; also a record of kind ``breakdown`` in the run's steps.jsonl.

    ``step`` is the sum of ``data``, ``compute``, ``communication`` (what compute does not hide) and ``optimizer``.
    """
    train_set, _ = ready_data(run, workload, options.data)
    model, optimizer, data = run.prepare(
        workload.model(),
        optimizer_for(options),
        train_set,
        global_batch=options.global_batch,
        compile=options.compile,
        channels_last=options.channels_last,
        sync_batchnorm=options.sync_batchnorm,
    )
    model.train()
    waits: list[float] = []
    batch = None
    asked = perf_counter()
    for batch in run.steps(data, steps=WARM_UP + _real_steps(data.steps)):
        waits.append(perf_counter() - asked)
        run.strategy.forward_backward(model, workload.loss, *batch)
        run.step(optimizer)
        if run.device.type != "cpu":  # what the device still does is not a wait for data
            torch.get_device_module(run.device).synchronize(run.device)
        asked = perf_counter()
    parts = {
        "data": statistics.median(waits[WARM_UP:] or waits),
        **_parts(run, model, optimizer, workload.loss, batch),
    }
    parts["step"] = sum(parts.values())
    directory = RunDir.from_environment()
    if directory is not None and run.world.is_main:
        with RecordWriter(directory.records / "steps.jsonl") as records:
            records.write("breakdown", parts=parts)
    return parts


def _parts(
    run: Run, model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[..., Any], batch: Any
) -> dict[str, float]:
    x, y = batch
    strategy = run._context.strategy  # the model is the user's object, and knows no no_sync

    def passes(how: Callable[[], AbstractContextManager[Any]]) -> None:
        with how():
            loss(model(x), y).backward()

    def reduced() -> None:
        passes(contextlib.nullcontext)

    def unreduced() -> None:
        passes(strategy.no_sync)

    kinds: dict[str, Callable[[], Any]] = {
        "unreduced": unreduced,
        "reduced": reduced,
        "optimizer": optimizer.step,
    }
    reduced()  # the optimizer needs gradients
    times: dict[str, list[float]] = {name: [] for name in kinds}
    steps = {name: _steps_of(run, kind) for name, kind in kinds.items()}
    for _ in range(ROUNDS):
        for name, kind in kinds.items():
            _wait(run)
            began = perf_counter()
            for _ in range(steps[name]):
                kind()
            _wait(run)
            times[name].append((perf_counter() - began) / steps[name])
    median = {name: statistics.median(seconds) for name, seconds in times.items()}
    if run.world.world_size == 1:
        return {"compute": median["reduced"], "communication": 0.0, "optimizer": median["optimizer"]}
    return {
        "compute": median["unreduced"],
        "communication": max(0.0, median["reduced"] - median["unreduced"]),
        "optimizer": median["optimizer"],
    }


def _real_steps(of_epoch: int | None) -> int:
    return 30 if of_epoch is None else max(FEWEST, min(30, of_epoch - WARM_UP))


def _steps_of(run: Run, kind: Callable[[], Any]) -> int:
    """The number of steps that take about ``ROUND_S``; rank 0 decides it for all ranks."""
    kind()
    _wait(run)
    began = perf_counter()
    kind()
    _wait(run)
    return _agreed(run, perf_counter() - began)


def _agreed(run: Run, seconds: float) -> int:
    mine = max(FEWEST, min(MOST, int(ROUND_S / seconds)))
    return int(run.sum(mine if run.world.is_main else 0))


def _wait(run: Run) -> None:
    """Wait for all ranks and their devices."""
    if run.device.type != "cpu":
        torch.get_device_module(run.device).synchronize(run.device)
    run.sum(0)
