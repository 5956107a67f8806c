"""Images per second of the built-in workloads on one GPU, by precision, compilation and loader.

    CUDA_VISIBLE_DEVICES=0 python -m benchmarks throughput

A round is one epoch of real steps by the library's own loop: forward, loss, backward, fused optimizer; no evaluation.
It ends when the device has finished. "resident": the uint8 images are on the GPU, and are gathered, augmented and
normalised there, a batch at a time. "loader": the workers of a DataLoader do the same per sample, with pinned memory.
Compilation happens in the warm-up. On a machine without a GPU only ``--quick`` works, as a trial.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils.data import Dataset

from benchmarks.contest import Claim, Result, Rounds, contest
from benchmarks.machine import cores
from benchmarks.worker import Play

# Workload → its settings, global batch, and steps of a round.
WORK: dict[str, tuple[dict[str, str], int, int]] = {
    "mnist-cnn": ({}, 1024, 50),
    "wideresnet-cifar100": ({"depth": "28", "width": "10"}, 256, 20),
}
SMALL: dict[str, tuple[dict[str, str], int, int]] = {
    "mnist-cnn": ({}, 64, 4),
    "wideresnet-cifar100": ({"depth": "10", "width": "1"}, 16, 2),
}
PRECISIONS = {"cuda": ("fp32", "tf32", "bf16", "fp16"), "cpu": ("fp32", "bf16")}


class OneByOne(Dataset[Any]):
    """The samples of resident data, one at a time and on the CPU, like the data set of a tutorial."""

    def __init__(self, data: Any, samples: int) -> None:
        self._columns, self._transform, self._samples = data.columns, data.transform, samples

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
        from rankup.runtime.seed import SampleRandom

        chosen = torch.tensor([index % len(self._columns[0])])
        columns = tuple(column[chosen] for column in self._columns)
        return tuple(column[0] for column in self._transform(columns, SampleRandom(0, chosen)))


def play(
    *,
    precision: str,
    compiled: bool,
    resident: bool,
    workload: str,
    settings: dict[str, str],
    source: str,
    batch: int,
    steps: int,
    workers: int,
) -> Play:
    from rankup.runtime.data.resident import ResidentData
    from rankup.runtime.init import init
    from rankup.train.optimizers import optimizer_for
    from rankup.train.options import TrainOptions
    from rankup.train.workload import defaults_of, make_workload
    from rankup.workloads import WORKLOADS

    made: Any = make_workload(WORKLOADS[workload], settings)
    options = TrainOptions("", workload).with_defaults(defaults_of(made))
    run = init(precision=precision)
    data, _ = made.datasets(source)
    samples = batch * steps
    chosen = torch.arange(samples) % len(data)
    train_set: Any = (
        ResidentData(*(column[chosen] for column in data.columns), transform=data.transform)
        if resident
        else OneByOne(data, samples)
    )
    loader: dict[str, Any] = (
        {} if resident else {"num_workers": workers, "persistent_workers": workers > 0, "sample_rng": False}
    )
    model, optimizer, feed = run.prepare(
        made.model(),
        optimizer_for(options),
        train_set,
        global_batch=batch,
        channels_last=True,
        compile=compiled,
        **loader,
    )
    assert feed is not None
    batches = run.steps(feed, epochs=1_000_000)  # one loop: a second one over the same data is refused

    def one_epoch() -> float:
        began = time.perf_counter()
        for x, y in itertools.islice(batches, steps):
            run.strategy.forward_backward(model, made.loss, x, y)
            run.step(optimizer)
        if run.device.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        torch.cuda.empty_cache()  # the other contenders use the same GPU
        return seconds

    return one_epoch


def _name(precision: str, compiled: bool, resident: bool) -> str:
    return f"{precision}{', compiled' if compiled else ''}, {'resident' if resident else 'loader'}"


CONTENDERS: dict[str, Callable[..., Play]] = {
    _name(precision, compiled, resident): partial(
        play, precision=precision, compiled=compiled, resident=resident
    )
    for precision, compiled, resident in itertools.product(PRECISIONS["cuda"], (False, True), (False, True))
}


def run(quick: bool) -> Result:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not quick:
        raise SystemExit("throughput: torch finds no GPU; use --quick for a trial on the CPU")
    rounds: Rounds = {}
    claims = []
    workers = min(8, cores())
    for workload, (settings, batch, steps) in (SMALL if quick else WORK).items():
        source = "digits" if workload == "mnist-cnn" else "synthetic"
        work = {"workload": workload, "settings": settings, "source": source, "batch": batch, "steps": steps}
        names = [name for name in CONTENDERS if name.split(",")[0] in PRECISIONS[device]]
        seconds = contest(
            "throughput",
            names,
            {**work, "workers": workers},
            threads=1 if device == "cpu" else cores() // 2,
            rounds=1 if quick else 5,
            processes=1,
            variables={"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0")},
        )
        for name, values in seconds.items():
            rounds[f"{workload}, {name}"] = [batch * steps / value for value in values]
        for name, against in (
            ("tf32, resident", "fp32, resident"),
            ("bf16, resident", "fp32, resident"),
            ("bf16, compiled, resident", "bf16, resident"),
            ("bf16, compiled, resident", "bf16, compiled, loader"),
        ):
            claims.append(
                Claim(
                    f"{workload}: {name} / {against}",
                    f"{workload}, {name}",
                    f"{workload}, {against}",
                    None,
                    at_most=False,
                )
            )
    shown = {
        "device": torch.cuda.get_device_name() if device == "cuda" else "CPU",
        **{f"{name}, batch": batch for name, (_, batch, _) in (SMALL if quick else WORK).items()},
        "memory format": "channels last",
        "loader workers": workers,
    }
    notes = [
        "mnist-cnn on the digits, scaled to 28 × 28; wideresnet-cifar100 (28-10) on a synthetic stand-in of "
        "CIFAR-100's shape: its speed is that of the real images, which are as large."
    ]
    return Result("throughput", "Images per second on one GPU", "images/s", shown, rounds, claims, notes)
