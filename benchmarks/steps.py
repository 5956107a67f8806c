"""The cost of one training step without its arithmetic: the network is so small that the libraries' own work shows.

MLP 64 → 32 → 10, batch 64, plain SGD, cross-entropy, one thread; random data in memory. A round is one epoch, with its
iterator and its shuffling. All contenders start from the same weights and see the same samples, in different orders.
Lightning runs with everything off (``barebones``), and its clock runs from ``on_train_start`` to ``on_train_end``, so
the set-up of ``fit`` does not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.contest import Claim, Result, contest
from benchmarks.worker import Play

BATCH = 64
NEEDS = {"Fabric": "lightning", "Accelerate": "accelerate", "Lightning": "lightning"}


def tensors(steps: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(steps * BATCH, 64, generator=generator)
    return x, torch.randint(0, 10, (steps * BATCH,), generator=generator)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01)


def loader(steps: int) -> DataLoader[Any]:
    return DataLoader(TensorDataset(*tensors(steps)), batch_size=BATCH, shuffle=True)


def plain_loader(steps: int) -> Play:
    model = network()
    optimizer = sgd(model.parameters())
    batches = loader(steps)

    def play() -> None:
        for x, y in batches:
            loss = F.cross_entropy(model(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()

    return play


def plain_resident(steps: int) -> Play:
    model = network()
    optimizer = sgd(model.parameters())
    inputs, targets = tensors(steps)

    def play() -> None:
        for chosen in torch.split(torch.randperm(len(inputs)), BATCH):
            x, y = inputs.index_select(0, chosen), targets.index_select(0, chosen)
            loss = F.cross_entropy(model(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()

    return play


def ours_loader(steps: int) -> Play:
    return _ours(TensorDataset(*tensors(steps)))


def ours_resident(steps: int) -> Play:
    from rankup.runtime.data.resident import ResidentData

    return _ours(ResidentData(*tensors(steps)))


def _ours(dataset: Any) -> Play:
    from rankup.runtime.init import init

    run = init(device="cpu")
    model, optimizer, data = run.prepare(network(), sgd, dataset, global_batch=BATCH)

    def play() -> None:
        for x, y in run.steps(data, epochs=data.position.epoch + 1):
            loss = F.cross_entropy(model(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()

    return play


def fabric(steps: int) -> Play:
    from lightning.fabric import Fabric

    library = Fabric(accelerator="cpu", devices=1)
    network_ = network()
    model, optimizer = library.setup(network_, sgd(network_.parameters()))
    return _with_backward(library.backward, model, optimizer, library.setup_dataloaders(loader(steps)))


def accelerate(steps: int) -> Play:
    from accelerate import Accelerator

    library = Accelerator(cpu=True)
    network_ = network()
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


def lightning(steps: int) -> Play:
    from lightning.pytorch import LightningModule, Trainer

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = network()
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


CONTENDERS: dict[str, Callable[[int], Play]] = {
    "plain loop, DataLoader": plain_loader,
    "ours, DataLoader": ours_loader,
    "Fabric": fabric,
    "Accelerate": accelerate,
    "Lightning": lightning,
    "plain loop, resident": plain_resident,
    "ours, resident": ours_resident,
}


def run(quick: bool) -> Result:
    settings = {"steps": 50 if quick else 400}
    names = [name for name in CONTENDERS if name not in NEEDS or find_spec(NEEDS[name])]
    seconds = contest(
        "steps", names, settings, threads=1, rounds=3 if quick else 7, processes=1 if quick else 3
    )
    rounds = {name: [1e6 * value / settings["steps"] for value in values] for name, values in seconds.items()}
    claims = [
        Claim(
            f"ours with a {kind} / plain loop with it",
            f"ours, {name}",
            f"plain loop, {name}",
            1.05,
            at_most=True,
        )
        for kind, name in (("DataLoader", "DataLoader"), ("resident tensor", "resident"))
    ]
    return Result(
        "steps",
        "One step of a tiny network",
        "µs/step",
        {**settings, "batch": BATCH, "network": "MLP 64-32-10", "optimizer": "SGD", "threads": 1},
        rounds,
        claims,
    )
