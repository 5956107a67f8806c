"""The cost of the Trainer: ``rankup.train`` and a plain DDP loop with the same work, two processes of one thread.

The plain loop is the usual one: torch's DDP with its defaults, the training images resident in memory. It adds up the
training loss and accuracy, which the Trainer reports too. The bare loop adds up nothing. Network, images, optimizer and
global batch are the same; each contender has its own order. The Trainer runs two epochs per round, and the second one
counts, by its own report. It has no run directory, so it writes neither records nor snapshots.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Adam

from benchmarks.contest import Claim, Result, Rounds, contest
from benchmarks.mnist import images
from benchmarks.two_ranks import RANKS, on_two_ranks
from benchmarks.worker import Play
from rankup.runtime.data.resident import ResidentData
from rankup.runtime.init import init
from rankup.runtime.loop.epochs import Epoch
from rankup.runtime.seed import SampleRandom
from rankup.train.loop import train
from rankup.train.metrics import EvaluationResult
from rankup.train.options import TrainOptions
from rankup.train.report import TrainingReport
from rankup.workloads.data import is_present
from rankup.workloads.mnist_cnn import MnistCnn, normalised
from rankup.workloads.resnet50_mnist import Resnet50Mnist

WORKLOADS = {"mnist-cnn": MnistCnn, "resnet50-mnist": Resnet50Mnist}
OPTIMIZERS = {"mnist-cnn": "adam", "resnet50-mnist": "sgd"}


def plain(workload: str, source: str, batch: int, steps: int, *, counts: bool) -> Play:
    torch.set_flush_denormal(True)  # as ``rankup train`` does
    dist.init_process_group("gloo")
    work = WORKLOADS[workload]()
    model = DistributedDataParallel(work.model())
    optimizer = (
        Adam(model.parameters(), lr=1e-3, fused=True)
        if OPTIMIZERS[workload] == "adam"
        else SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True)
    )
    pixels, labels = images(source, batch * steps)
    share, rank = batch // RANKS, dist.get_rank()
    generator = torch.Generator().manual_seed(0)
    unused = SampleRandom(0, labels)

    def play() -> float:
        began = time.perf_counter()
        sums = torch.zeros(2, dtype=torch.float64)
        for chosen in torch.randperm(len(labels), generator=generator).split(batch):
            mine = chosen[rank * share : (rank + 1) * share]
            x, y = normalised((pixels.index_select(0, mine), labels.index_select(0, mine)), unused)
            output = model(x)
            loss = work.loss(output, y)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
            if counts:
                sums += torch.stack((loss.detach().double() * share, work.correct(output, y).double()))
        if counts:
            dist.all_reduce(sums)
        return time.perf_counter() - began

    return play


def trainer(workload: str, source: str, batch: int, steps: int) -> Play:
    torch.set_flush_denormal(True)
    work = WORKLOADS[workload]()
    pixels, labels = images(source, batch * steps)
    data = ResidentData(pixels, labels, transform=normalised)
    few = ResidentData(pixels[:batch], labels[:batch], transform=normalised)
    work.datasets = lambda source: (data, few)  # type: ignore[method-assign]
    options = TrainOptions(
        "", workload, data=source, epochs=2, global_batch=batch, optimizer=OPTIMIZERS[workload], device="cpu"
    )

    def play() -> float:
        run = init(device="cpu")
        report = Clock(run, options, work)
        train(run, work, options, report)
        return report.seconds

    return play


class Clock(TrainingReport):
    """``seconds``: those of the last epoch's training."""

    def epoch_ends(
        self, epoch: Epoch, trained: EvaluationResult, tested: EvaluationResult, *, target_reached: bool
    ) -> None:
        super().epoch_ends(epoch, trained, tested, target_reached=target_reached)
        self.seconds = epoch.seconds


CONTENDERS: dict[str, Callable[..., Play]] = {
    name: on_two_ranks("trainer", name, make)
    for name, make in {
        "plain DDP loop": lambda **settings: plain(**settings, counts=True),
        "plain DDP loop, bare": lambda **settings: plain(**settings, counts=False),
        "ours": trainer,
    }.items()
}


def run(quick: bool) -> Result:
    source = "fashion-mnist" if is_present("fashion-mnist") else "digits"
    work = {"mnist-cnn": (64, 20 if quick else 100), "resnet50-mnist": (32, 2 if quick else 8)}
    rounds: Rounds = {}
    claims = []
    for workload, (batch, steps) in work.items():
        settings = {"workload": workload, "source": source, "batch": batch, "steps": steps}
        seconds = contest(
            "trainer",
            CONTENDERS,
            settings,
            threads=1,
            rounds=3 if quick else 6,
            processes=1 if quick else 2,
        )
        for name, values in seconds.items():
            rounds[f"{name}, {workload}"] = [1e3 * value / steps for value in values]
        for against, target in (("plain DDP loop", 1.02), ("plain DDP loop, bare", None)):
            claims.append(
                Claim(
                    f"ours / {against}, {workload}",
                    f"ours, {workload}",
                    f"{against}, {workload}",
                    target,
                    at_most=True,
                )
            )
    shown = {"data": source, "processes": RANKS, "threads each": 1, "batch and steps": json.dumps(work)}
    return Result("trainer", "What the Trainer costs", "ms/step", shown, rounds, claims)
