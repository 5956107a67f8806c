"""Registered objects of the script go on where they were, on every rank."""

from __future__ import annotations

import copy
import decimal
import functools
import math
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import rankup
from ranks import run_ranks
from rankup.errors import RankupError

X = torch.linspace(-1, 1, 12, dtype=torch.float64)[:, None]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.temperature = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x) * self.temperature
        return out


class Child:
    __slots__ = ("seen",)

    def __init__(self) -> None:
        self.seen: list[int] = []


class Trainer:
    """``made`` is an attribute that training makes. ``limit`` is a constant of the script."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.best = 0.0
        self.table: dict[str, list[int]] = {}
        self.children = [Child(), Child()]

    def fit(self, folder: Path, killed: int | None, differ: bool) -> dict[str, Any]:
        run = rankup.init(
            snapshots=rankup.Snapshots(every="2 steps", directory=folder, asynchronous=False),
            precision="fp64",
        )
        torch.manual_seed(0)
        self.net = Net()
        model, opt, data = run.prepare(
            self.net, lambda p: torch.optim.SGD(p, lr=0.01), rankup.ResidentData(X), global_batch=6
        )
        run.register(trainer=self, model=model)
        for x in run.steps(data, epochs=4):
            step = run.global_step
            if step == killed:
                return {}
            self.net.temperature *= 1.01
            self.best += step + (run.world.rank if differ else 0)
            self.table.setdefault("a", []).append(step)
            self.children[step % 2].seen.append(step)
            self.made = getattr(self, "made", 0) + step
            (model(x) - (self.best + self.made) * x).square().mean().backward()
            opt.step()
            opt.zero_grad()
        return {
            "weights": [value.item() for value in self.net.state_dict().values()],
            "own": (self.best, self.table, [child.seen for child in self.children], self.made),
            "temperature": self.net.temperature,
            "limit": self.limit,
        }


def train(folder: Path, killed: int | None, limit: int = 1, differ: bool = False) -> Any:
    try:
        return Trainer(limit).fit(folder, killed, differ)
    except RankupError as error:
        return error.code


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [2, *(pytest.param(n, marks=pytest.mark.campaign) for n in (1, 3))])
def test_an_object_and_its_model_go_on_where_they_were(tmp_path: Path, world_size: int):
    whole = run_ranks(train, world_size, tmp_path / "whole", None)
    run_ranks(train, world_size, tmp_path / "killed", 5)
    resumed = run_ranks(train, world_size, tmp_path / "killed", None)
    assert resumed == whole
    assert whole[0]["own"][1] == {"a": list(range(8))}


def test_what_the_script_only_sets_stays_the_scripts(tmp_path: Path):
    run_ranks(train, 1, tmp_path, 5)
    assert run_ranks(train, 1, tmp_path, None, 7)[0]["limit"] == 7


def test_an_object_that_differs_between_ranks_is_named(tmp_path: Path):
    assert run_ranks(train, 2, tmp_path, None, 1, True) == ["ranks-differ"] * 2


class Transition(NamedTuple):
    state: Any
    reward: float


class Memory:
    """A replay buffer, and a teacher: an average of a model with batch statistics, which differ between ranks."""

    def __init__(self, model: nn.Module) -> None:
        self.teacher = copy.deepcopy(model)
        self.data: deque[Any] = deque(maxlen=5)

    @torch.no_grad()
    def update(self, model: nn.Module, item: Any) -> None:
        self.data.append(item)
        for mine, theirs in zip(self.teacher.state_dict().values(), model.state_dict().values(), strict=True):
            mine.copy_(mine * 0.5 + theirs * 0.5 if mine.is_floating_point() else theirs)


@dataclass
class Kept:
    """Of a replay buffer: no container, and no plain value."""

    item: tuple[Any, Any]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.item)


def remember(folder: Path, killed: int | None, kind: Callable[[Any], Any]) -> Any:
    run = rankup.init(
        snapshots=rankup.Snapshots(every="3 steps", directory=folder, asynchronous=False), precision="fp64"
    )
    net = nn.Sequential(nn.Linear(1, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    model, opt, data = run.prepare(
        net, lambda p: torch.optim.SGD(p, lr=0.01), rankup.ResidentData(X), global_batch=6
    )
    memory = Memory(net)
    run.register(memory=memory)
    try:
        for x in run.steps(data, epochs=4):
            if run.global_step == killed:
                return None
            item = numpy.full(2, run.global_step, numpy.float32), numpy.float32(run.global_step)
            memory.update(net, kind(item))
            old = sum(float(state.sum()) + float(reward) for state, reward in memory.data)
            (model(x) - memory.teacher.eval()(x) - math.sin(old) * x).square().mean().backward()
            opt.step()
            opt.zero_grad()
    except RankupError as error:
        return error.code, error.message
    weights = [value.tolist() for module in (net, memory.teacher) for value in module.state_dict().values()]
    return [*weights, type(memory.data[-1]).__name__]


def as_transition(item: tuple[Any, Any]) -> Transition:
    return Transition(*item)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [tuple, as_transition])
@pytest.mark.parametrize("world_size", [2, *(pytest.param(n, marks=pytest.mark.campaign) for n in (1, 3))])
def test_a_buffer_of_arrays_and_a_teacher_with_batch_statistics_go_on_where_they_were(
    tmp_path: Path, world_size: int, kind: Any
):
    whole = run_ranks(remember, world_size, tmp_path / "whole", None, kind)
    run_ranks(remember, world_size, tmp_path / "killed", 5, kind)
    assert run_ranks(remember, world_size, tmp_path / "killed", None, kind) == whole
    assert all(isinstance(weights, list) for weights in whole)


class Late:
    """Makes ``kind()`` in its third step."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.thing: Any = None
        self.things: list[Any] = [nn.Linear(1, 1)]

    def step(self, number: int) -> None:
        if number == 2:
            self.thing = self.kind()
            self.things.append(self.kind())


def make_late(folder: Path, kind: Any) -> Any:
    run = rankup.init(
        snapshots=rankup.Snapshots(every="3 steps", directory=folder, asynchronous=False), precision="fp64"
    )
    model, opt, data = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.01), rankup.ResidentData(X), global_batch=6
    )
    late = Late(kind)
    run.register(late=late)
    try:
        for x in run.steps(data, epochs=4):
            late.step(run.global_step)
            model(x).square().mean().backward()
            opt.step()
            opt.zero_grad()
    except RankupError as error:
        return error.message
    return ""


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (random.Random, "late.thing is a random.Random, which the training has made"),
        (
            functools.partial(nn.Linear, 1, 1),
            "late.thing is a torch.nn.modules.linear.Linear, which the training",
        ),
        (list, ""),
    ],
)
def test_a_generator_or_a_module_that_the_training_makes_is_refused_at_the_save(
    tmp_path: Path, kind: Any, says: str
):
    (said,) = run_ranks(make_late, 1, tmp_path, kind)
    assert said.startswith(says) and bool(said) == bool(says)


def test_what_a_resume_could_not_make_anew_is_refused_in_the_first_step(tmp_path: Path):
    ((code, message),) = run_ranks(remember, 1, tmp_path, 1, Kept)
    assert code == "unsaveable-state"
    assert message.startswith("memory.data[0] is a test_objects.Kept, which the training has made")


class Warm:
    """It has no attributes: nothing of it is in a snapshot."""


class Hot:
    pass


class Phases:
    """Each method changes which function or class it uses."""

    def __init__(self) -> None:
        self.loss: Any = functional.mse_loss
        self.losses = {"first": functional.mse_loss}
        self.mode: Any = Warm()
        self.hook: Any = None
        self.draw = self.one
        self.best = 0.0

    def one(self) -> int:
        return 1

    def two(self) -> int:
        return 2


def error_of(folder: Path, thing: Any, body: Callable[[int], object], forgotten: tuple[str, ...] = ()) -> str:
    """What ends a training of four steps that has registered ``thing``: ``body`` gets the number of each step."""
    run = rankup.init(
        snapshots=rankup.Snapshots(every="1 steps", directory=folder, asynchronous=False), precision="fp64"
    )
    model, opt, data = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.01), rankup.ResidentData(X), global_batch=6
    )
    run.forget(*forgotten)
    run.register(thing=thing)
    try:
        for x in run.steps(data, epochs=2):
            body(run.global_step)
            model(x).square().mean().backward()
            opt.step()
            opt.zero_grad()
    except RankupError as error:
        return f"{error.code}: {error.message}"
    return ""


def switch(folder: Path, what: str, value: Any, forgotten: tuple[str, ...]) -> str:
    phases = Phases()

    def body(step: int) -> None:
        phases.draw = phases.one  # another object of the same method
        if step == 2:
            exec(f"phases.{what} = value", {"phases": phases, "value": value or phases.two})

    return error_of(folder, phases, body, forgotten)


@pytest.mark.parametrize(
    ("what", "value", "was", "now"),
    [
        ("loss", functional.l1_loss, "mse_loss", "l1_loss"),
        ("losses['first']", functional.l1_loss, "mse_loss", "l1_loss"),
        ("mode", Hot(), "a Warm", "a Hot"),
        ("hook", print, "None", "print"),
        ("hook", Hot(), "None", "a Hot"),
        ("draw", None, "one", "two"),
    ],
)
def test_another_function_or_class_in_a_registered_object_is_refused(
    tmp_path: Path, what: str, value: Any, was: str, now: str
):
    (said,) = run_ranks(switch, 1, tmp_path, what, value, ())
    begin = f"unsaveable-state: thing.{what} changes in training ({was} when the loop began, {now} now)"
    assert said.startswith(begin), said


def test_a_function_that_the_script_forgets_is_its_own_matter(tmp_path: Path):
    assert run_ranks(switch, 1, tmp_path, "loss", functional.l1_loss, ("loss",)) == [""]


LAMBDAS = {"first": lambda x: x * 1.0, "second": lambda x: x * 2.0}  # they differ in a constant


class Counted(dict[str, int]):
    """It has an attribute beside its items."""

    count = 0

    def __init__(self, **items: int) -> None:
        super().__init__(**items)
        self.count = 0


class AttrDict(dict[str, Any]):
    __getattr__ = dict.__getitem__  # which raises KeyError


class Taking:
    """Each step takes something from ``source``, or changes it."""

    def __init__(self, how: str) -> None:
        loader = DataLoader(TensorDataset(torch.arange(40.0)), batch_size=2)
        self.how, self.taken = how, 0
        self.later: Any = None  # made in the first step
        self.source: Any = {
            "generator": lambda: self.endless(loader),
            "loader": lambda: iter(loader),
            "map": lambda: map(sum, loader),
            "list": lambda: iter([*range(40)]),
            "decimal": lambda: decimal.Decimal("0.1"),
            "closure": counter,
            "bytes": lambda: bytearray(2),
            "later": lambda: loader,
            "module": nn.MSELoss,
            "lambda": lambda: LAMBDAS["first"],
            "counted": lambda: Counted(a=1),
            "anew": lambda: None,
        }[how]()

    def endless(self, loader: Any) -> Iterator[Any]:
        while True:
            yield from loader

    def take(self) -> None:
        self.taken += 1
        if self.how == "decimal":
            self.source *= 2
        elif self.how == "closure":
            self.source()
        elif self.how == "module":
            self.source = nn.L1Loss()
        elif self.how == "lambda":
            self.source = LAMBDAS["second"]
        elif self.how == "counted":
            self.source.count += 1
        elif self.how == "bytes":
            self.source[0] += 1
        elif self.how == "anew":
            self.later = iter(range(self.taken))
            next(self.later)
        elif self.how == "later":
            self.later = self.later or iter(self.source)
            next(self.later)
        else:
            next(self.source)


def counter() -> Callable[[], int]:
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return count

    return step


def take(folder: Path, how: str, forgotten: tuple[str, ...] = ()) -> str:
    taking = Taking(how)
    return error_of(folder, taking, lambda step: taking.take(), forgotten).partition(" changes")[0]


@pytest.mark.parametrize(
    ("how", "path"),
    [
        ("generator", ".source"),
        ("loader", ".source._num_yielded"),
        ("map", ".source[0][0]._num_yielded"),
        ("list", ".source"),
        ("decimal", ".source"),
        ("closure", ".source.count"),
        ("bytes", ".source"),
        ("later", ".later._num_yielded"),
        ("module", ".source"),
        ("lambda", ".source"),
        ("counted", ".source.count"),
    ],
)
def test_what_no_snapshot_contains_may_not_change_in_a_registered_object(tmp_path: Path, how: str, path: str):
    assert run_ranks(take, 1, tmp_path, how) == [f"unsaveable-state: thing{path}"]


def test_what_each_step_makes_anew_or_the_script_forgets_may_change(tmp_path: Path):
    assert run_ranks(take, 1, tmp_path / "anew", "anew") == [""]
    assert run_ranks(take, 1, tmp_path / "forgotten", "loader", ("source",)) == [""]


class Marked(torch.Tensor):
    """A tensor of the script's class, which no snapshot may hold."""


def change_by_itself(folder: Path, kind: str, forgotten: tuple[str, ...] = ()) -> str:
    counted, attributes, marked = Counted(a=1), AttrDict(count=0), torch.zeros(2).as_subclass(Marked)

    def count(step: int) -> None:
        counted.count += 1

    def set_item(step: int) -> None:
        attributes["count"] += 1

    thing, body = {
        "counted": (counted, count),
        "attributes": (attributes, set_item),
        "tensor": (marked, lambda step: marked.add_(1)),
    }[kind]
    return error_of(folder, thing, body, forgotten)


def test_a_container_with_attributes_and_a_tensor_of_an_own_class_are_refused(tmp_path: Path):
    (said,) = run_ranks(change_by_itself, 1, tmp_path / "counted", "counted")
    assert said.startswith("unsaveable-state: thing.count changes in training (0 when the loop began, 1 now)")
    (said,) = run_ranks(change_by_itself, 1, tmp_path / "tensor", "tensor")
    assert said.startswith("unsaveable-state: thing changes in training"), said
    assert run_ranks(change_by_itself, 1, tmp_path / "attributes", "attributes") == [""]
    assert run_ranks(change_by_itself, 1, tmp_path / "forgotten", "counted", ("count",)) == [""]


class Bank(nn.Module):
    """It changes a buffer that its ``state_dict`` leaves out."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1, dtype=torch.float64), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count = self.count + 1
        return x


def delete(folder: Path, killed: int | None) -> Any:
    run = rankup.init(
        snapshots=rankup.Snapshots(every="1 steps", directory=folder, asynchronous=False), precision="fp64"
    )
    model, opt, data = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.01), rankup.ResidentData(X), global_batch=6
    )
    first, second = Phases(), Phases()
    first.warm = first.cold = second.made = None  # type: ignore[attr-defined]
    bank, second.bank = Bank(), Bank()  # type: ignore[attr-defined]
    run.register(first=first, second=second, bank=bank)
    for epoch in run.epochs(3):
        for x in epoch:
            if run.global_step == killed:
                return None
            if run.global_step == 0:
                first.made = second.made = []  # type: ignore[attr-defined]
            if run.global_step == 3:
                del first.warm  # type: ignore[attr-defined]
            x = bank(second.bank(x))  # type: ignore[attr-defined]
            model(x).square().mean().backward()
            opt.step()
            opt.zero_grad()
    shared = first.made is second.made  # type: ignore[attr-defined]
    return hasattr(first, "warm"), hasattr(first, "cold"), shared, bank.count.item(), second.bank.count.item()  # type: ignore[attr-defined]


def test_a_deleted_attribute_is_gone_after_a_resume_and_a_buffer_that_is_not_persistent_goes_on(
    tmp_path: Path,
):
    (whole,) = run_ranks(delete, 1, tmp_path / "whole", None)
    assert whole == (False, True, True, 6.0, 6.0)
    run_ranks(delete, 1, tmp_path / "killed", 5)
    assert run_ranks(delete, 1, tmp_path / "killed", None) == [whole]
