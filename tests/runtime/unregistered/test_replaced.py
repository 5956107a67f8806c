"""Names that get another object in training: a snapshot has the object that was registered, or none. The resume that
would go on with the first one stops, whatever kind of object it is."""

from __future__ import annotations

import copy
import decimal
import queue
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import rankup
from rankup.errors import RankupError

X = torch.linspace(-1, 1, 12, dtype=torch.float64)[:, None]  # three steps in an epoch


class Warm:
    """A state of a script's own machine: it has no attributes."""


class Hot:
    pass


class Held:
    """What the script has; ``train`` registers what ``registered`` names."""

    def __init__(self, model: nn.Module, opt: torch.optim.Optimizer) -> None:
        self.model, self.opt = model, opt
        self.teacher: Any = None
        self.weights = torch.ones(3)
        self.history: list[float] = []
        self.schedule = torch.optim.lr_scheduler.StepLR(opt, 1)
        self.criterion: nn.Module = nn.MSELoss()
        self.loss: Any = functional.mse_loss
        self.draw: Any = self.first
        self.mode: Any = Warm()
        self.price = decimal.Decimal("0.1")
        self.jobs: queue.Queue[int] = queue.Queue()

    def first(self) -> int:
        return 1

    def second(self) -> int:
        return 2


def a_teacher(held: Held) -> None:
    held.teacher = nn.Sequential(copy.deepcopy(held.model))


def another_criterion(held: Held) -> None:
    held.criterion = nn.L1Loss()


def another_number(held: Held) -> None:
    held.price *= 2


def another_job(held: Held) -> None:
    held.jobs.put(1)


def another_tensor(held: Held) -> None:
    held.weights = held.weights * 2


def another_list(held: Held) -> None:
    held.history = [*held.history, 1.0]


def another_schedule(held: Held) -> None:
    held.schedule = torch.optim.lr_scheduler.StepLR(held.opt, 5)


def another_optimizer(held: Held) -> None:
    held.opt = torch.optim.SGD(held.model.parameters(), lr=0.2)


def another_function(held: Held) -> None:
    held.loss = functional.l1_loss


def another_lambda(held: Held) -> None:
    held.loss = lambda out, target: 2 * functional.l1_loss(out, target)


def another_method(held: Held) -> None:
    held.draw = held.second


def another_state(held: Held) -> None:
    held.mode = Hot()


def an_own_step(held: Held) -> None:
    vars(held)["first"] = held.second


CASES: list[tuple[Callable[[Held], None], str, tuple[str, ...]]] = [
    (a_teacher, "teacher", ()),
    (another_criterion, "criterion", ()),
    (another_number, "price", ()),
    (another_job, "jobs", ()),
    (another_tensor, "weights", ("weights",)),
    (another_list, "history", ("history",)),
    (another_schedule, "schedule", ("schedule",)),
    (another_optimizer, "opt", ()),
    (another_function, "loss", ()),
    (another_lambda, "loss", ()),
    (another_method, "draw", ()),
    (another_state, "mode", ()),
    (an_own_step, "first", ()),
]


def train(change: Callable[[Held], None], registered: tuple[str, ...], folder: Path, killed: bool) -> None:
    run = rankup.init(
        name="one",
        snapshots=rankup.Snapshots(every="1 steps", directory=folder, asynchronous=False),
        precision="fp64",
    )
    model, opt, data = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1), rankup.ResidentData(X), global_batch=4
    )
    held = Held(model, opt)
    run.register(**{name: getattr(held, name) for name in registered})
    for epoch in run.epochs(3):
        for x in epoch:
            if killed and run.global_step == 5:
                return
            held.criterion(model(x), x).backward()
            opt.step()
            opt.zero_grad()
        if epoch.index == 0:
            change(held)


@pytest.mark.parametrize(
    ("change", "name", "registered"), CASES, ids=lambda case: getattr(case, "__name__", "")
)
def test_what_replaces_it_is_named_and_a_resume_stops(
    change: Callable[[Held], None],
    name: str,
    registered: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    train(change, registered, tmp_path, killed=True)
    assert f"held.{name}" in capsys.readouterr().err
    with pytest.raises(RankupError) as error:
        train(change, registered, tmp_path, killed=False)
    assert error.value.code == "state-lost" and f"held.{name}" in error.value.message


def a_tensor_that_each_step_changes(held: Held) -> None:
    vars(held).setdefault("lazy", torch.zeros(2)).add_(1)


def a_tensor_of_each_step(held: Held) -> None:
    vars(held)["lazy"] = torch.full((2,), float(len(held.history)))
    held.history.append(0.0)


@pytest.mark.parametrize(
    ("in_step", "lost"), [(a_tensor_that_each_step_changes, True), (a_tensor_of_each_step, False)]
)
def test_what_the_first_step_puts_into_an_object_and_all_change_is_state(
    in_step: Callable[[Held], None], lost: bool, tmp_path: Path
):
    def attempt(killed: bool) -> None:
        run = rankup.init(
            name="one", snapshots=rankup.Snapshots(every="1 steps", directory=tmp_path, asynchronous=False)
        )
        model, opt, data = run.prepare(
            nn.Linear(1, 1),
            lambda p: torch.optim.SGD(p, lr=0.1),
            rankup.ResidentData(X.float()),
            global_batch=4,
        )
        held = Held(model, opt)
        run.register(history=held.history)
        for x in run.steps(data, epochs=3):
            if killed and run.global_step == 6:
                return
            model(x).square().mean().backward()
            in_step(held)
            opt.step()
            opt.zero_grad()

    attempt(killed=True)
    if not lost:
        attempt(killed=False)
        return
    with pytest.raises(RankupError) as error:
        attempt(killed=False)
    assert error.value.code == "state-lost" and "held.lazy" in error.value.message


class Counting(torch.optim.SGD):
    """It keeps something of its own, beside its state."""

    steps = 0

    def step(self, closure: Any = None) -> Any:
        self.steps += 1
        return super().step(closure)


def test_a_prepared_optimizer_that_is_registered_keeps_its_attributes(tmp_path: Path):
    def attempt(killed: bool) -> int:
        run = rankup.init(
            name="one", snapshots=rankup.Snapshots(every="1 steps", directory=tmp_path, asynchronous=False)
        )
        model, opt, data = run.prepare(
            nn.Linear(1, 1), lambda p: Counting(p, lr=0.1), rankup.ResidentData(X.float()), global_batch=4
        )
        run.register(opt=opt)
        for x in run.steps(data, epochs=3):
            if killed and run.global_step == 6:
                return 0
            model(x).square().mean().backward()
            opt.step()
            opt.zero_grad()
        steps: int = opt.steps
        return steps

    attempt(killed=True)
    assert attempt(killed=False) == 9


def test_an_iterator_of_a_library_cannot_be_registered():
    run = rankup.init()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X), batch_size=2)
    with pytest.raises(RankupError) as error:
        run.register(ahead=iter(loader))
    assert error.value.code == "not-stateful" and "place" in error.value.message
