"""The cost of one training step without its arithmetic: the network is so small that the libraries' own work shows.

As users train: rankup has a run directory, and writes records and snapshots. One process and two, with 4, 300 and 1,000
parameter tensors (an MLP 64 → 32 → 10, with layers of one scale and one shift between), batch 64 over all processes,
plain SGD, cross-entropy, one thread each; random data in memory, 400 steps per epoch. A round is half a second or more
of a training that goes on: records come every half a second. All contenders start from the same weights and see the
same samples, in different orders. The other libraries are measured with the smallest network. Lightning runs with
everything off (``barebones``), and its clock runs from ``on_train_start`` to ``on_train_end``, so the set-up of ``fit``
does not count.
"""

from __future__ import annotations

import atexit
import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.contest import Claim, Result, Rounds, contest
from benchmarks.two_ranks import RANKS, on_two_ranks
from benchmarks.worker import Play

BATCH, EPOCH = 64, 400
SIZES = {4: 2000, 300: 100, 1000: 40}  # parameter tensors → steps of a round; half of them on two processes
NEEDS = {"Fabric": "lightning", "Accelerate": "accelerate", "Lightning": "lightning"}


class Affine(nn.Module):
    """Two tensors and hardly any arithmetic."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.addcmul(self.shift, x, self.scale)


def network(tensors: int = 4) -> nn.Module:
    """With so many parameter tensors, an even number from 4."""
    torch.manual_seed(0)
    between = [Affine(32) for _ in range(tensors // 2 - 2)]
    return nn.Sequential(nn.Linear(64, 32), *between, nn.ReLU(), nn.Linear(32, 10))


def samples(steps: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(steps * BATCH, 64, generator=generator)
    return x, torch.randint(0, 10, (steps * BATCH,), generator=generator)


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01)


def loader(steps: int) -> DataLoader[Any]:
    return DataLoader(TensorDataset(*samples(steps)), batch_size=BATCH, shuffle=True)


def plain_loader(steps: int, tensors: int) -> Play:
    batches = loader(EPOCH)
    return _plain(network(tensors), (batch for _ in itertools.count() for batch in batches), steps)


def plain_resident(steps: int, tensors: int) -> Play:
    return _plain(network(tensors), _resident_batches(0, 1), steps)


def plain_ddp(steps: int, tensors: int) -> Play:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(network(tensors))
    return _plain(model, _resident_batches(dist.get_rank(), RANKS), steps)


def _resident_batches(rank: int, ranks: int) -> Iterator[Any]:
    inputs, targets = samples(EPOCH)
    generator = torch.Generator().manual_seed(0)  # the same order on all ranks
    share = BATCH // ranks
    while True:
        for chosen in torch.split(torch.randperm(len(inputs), generator=generator), BATCH):
            mine = chosen[rank * share : (rank + 1) * share] if ranks > 1 else chosen
            yield inputs.index_select(0, mine), targets.index_select(0, mine)


def _plain(model: nn.Module, batches: Iterator[Any], steps: int) -> Play:
    return _training(model, sgd(model.parameters()), batches, steps)


def _training(model: Any, optimizer: Any, batches: Iterator[Any], steps: int) -> Play:
    """Rounds of ``steps`` of a loop that goes on."""

    def play() -> None:
        for x, y in itertools.islice(batches, steps):
            loss = F.cross_entropy(model(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()

    return play


def ours_loader(steps: int, tensors: int) -> Play:
    return _ours(TensorDataset(*samples(EPOCH)), steps, tensors)


def ours_resident(steps: int, tensors: int) -> Play:
    from rankup.runtime.data.resident import ResidentData

    return _ours(ResidentData(*samples(EPOCH)), steps, tensors)


def _ours(dataset: Any, steps: int, tensors: int) -> Play:
    from rankup.runtime.init import init

    run = init(device="cpu")
    model, optimizer, data = run.prepare(network(tensors), sgd, dataset, global_batch=BATCH)
    return _training(model, optimizer, iter(run.steps(data, epochs=1_000_000)), steps)


def in_run_directory(make: Callable[..., Play]) -> Callable[..., Play]:
    """As under ``rankup run``, which gives all ranks of a run one directory."""

    def build(**settings: Any) -> Play:
        if "RANKUP_RUN_DIR" in os.environ:  # the second rank
            return make(**settings)
        folder = tempfile.TemporaryDirectory(prefix="rankup-steps-")
        atexit.register(folder.cleanup)
        os.environ["RANKUP_RUN_DIR"] = folder.name
        return make(**settings)

    return build


def fabric(steps: int, tensors: int) -> Play:
    from lightning.fabric import Fabric

    library = Fabric(accelerator="cpu", devices=1)
    network_ = network(tensors)
    model, optimizer = library.setup(network_, sgd(network_.parameters()))
    return _with_backward(library.backward, model, optimizer, library.setup_dataloaders(loader(steps)))


def accelerate(steps: int, tensors: int) -> Play:
    from accelerate import Accelerator

    library = Accelerator(cpu=True)
    network_ = network(tensors)
    model, optimizer, batches = library.prepare(network_, sgd(network_.parameters()), loader(steps))
    return _with_backward(library.backward, model, optimizer, batches)


def _with_backward(backward: Callable[..., None], model: Any, optimizer: Any, batches: Any) -> Play:
    def play() -> None:
        for x, y in batches:
            loss = F.cross_entropy(model(x), y)
            backward(loss)
            optimizer.step()
            optimizer.zero_grad()

    return play


def lightning(steps: int, tensors: int) -> Play:
    from lightning.pytorch import LightningModule, Trainer

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = network(tensors)
            self.began = self.seconds = 0.0

        def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
            x, y = batch
            return F.cross_entropy(self.network(x), y)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return sgd(self.parameters())

        def on_train_start(self) -> None:
            self.began = time.perf_counter()

        def on_train_end(self) -> None:
            self.seconds = time.perf_counter() - self.began

    module, batches = Module(), loader(steps)

    def play() -> float:
        Trainer(accelerator="cpu", devices=1, max_epochs=1, barebones=True).fit(module, batches)
        return module.seconds

    return play


CONTENDERS: dict[str, Callable[..., Play]] = {
    "plain loop, DataLoader": plain_loader,
    "ours, DataLoader": in_run_directory(ours_loader),
    "plain loop, resident": plain_resident,
    "ours, resident": in_run_directory(ours_resident),
    "plain DDP, 2 processes": on_two_ranks("steps", "plain DDP, 2 processes", plain_ddp),
    "ours, 2 processes": in_run_directory(on_two_ranks("steps", "ours, 2 processes", ours_resident)),
    "Fabric": fabric,
    "Accelerate": accelerate,
    "Lightning": lightning,
}
CLAIMS = {
    # ours → against, at most, the part of a round's steps
    "ours, DataLoader": ("plain loop, DataLoader", 1.03, 1.0),
    "ours, resident": ("plain loop, resident", 1.03, 1.0),
    "ours, 2 processes": ("plain DDP, 2 processes", 1.02, 0.5),
}


def run(quick: bool) -> Result:
    rounds: Rounds = {}
    claims = []
    for tensors, size in SIZES.items():
        for name, (against, most, part) in CLAIMS.items():
            steps = int(part * (max(10, size // 40) if quick else size))
            others = NEEDS if (tensors, name) == (4, "ours, DataLoader") else {}
            seconds = contest(
                "steps",
                # Few at a time, so that a machine whose speed varies is as fast for the one as for the other.
                [against, name, *(other for other, package in others.items() if find_spec(package))],
                {"steps": steps, "tensors": tensors},
                threads=1,
                rounds=3 if quick else 15,
                processes=1 if quick else 3,
            )
            rounds |= {
                f"{one}, {tensors}": [1e6 * value / steps for value in row] for one, row in seconds.items()
            }
            claims.append(
                Claim(
                    f"{name} / {against}, {tensors} tensors",
                    f"{name}, {tensors}",
                    f"{against}, {tensors}",
                    most,
                    at_most=True,
                )
            )
    shown = {
        "parameter tensors": ", ".join(map(str, SIZES)),
        "batch": BATCH,
        "optimizer": "SGD",
        "threads": 1,
    }
    return Result("steps", "One step of a tiny network", "µs/step", shown, rounds, claims)
