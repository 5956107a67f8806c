"""Training scripts with state that no snapshot holds: each holds ``held``, and ``step(held)`` changes the training.

``PROGRAMS``: name → (make, step). ``make()`` gives ``held`` and the thing whose registration cures it, None where the
program must keep its state in something else.
"""

from __future__ import annotations

import copy
import functools
import itertools
import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from types import SimpleNamespace
from typing import Any, NamedTuple

import module_of_script
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

Made = tuple[Any, Any]


class Phase(Enum):
    WARM = 1
    HOT = 2
    COLD = 3


class Pair(NamedTuple):
    low: int
    high: int


@dataclass
class Options:
    slope: float = 1.0
    seen: list[int] = field(default_factory=list)


class Slots:
    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Holder:
    """A trainer: everything is in attributes."""

    def __init__(self, value: Any = 0) -> None:
        self.value = value

    def add(self) -> int:
        self.value += 1
        return self.value


class OnClass:
    count = 0


class Table:
    """A property over a dict, whose getter no look may call."""

    def __init__(self) -> None:
        self._numbers = {"count": 0}

    @property
    def count(self) -> int:
        return self._numbers["count"]

    @count.setter
    def count(self, value: int) -> None:
        self._numbers["count"] = value


class Noise(nn.Module):
    """A generator in a list, in a module, in a module."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Identity())
        self.inner[0].generators = [torch.Generator().manual_seed(3)]  # type: ignore[assignment]


class Criterion(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("center", torch.zeros(1))


class OwnMomentum:
    """An optimizer of one's own: a dict by parameter."""

    def __init__(self) -> None:
        self.weight = nn.Parameter(torch.ones(1))
        self.momentum = {self.weight: torch.zeros(1)}

    def step(self) -> float:
        self.momentum[self.weight] = 0.5 * self.momentum[self.weight] + 1
        return self.momentum[self.weight].item()


class Average:
    """With a ``state_dict``, that does not have all of it."""

    def __init__(self) -> None:
        self.mean, self.count = torch.zeros(1), 0

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.mean = state["mean"].clone()


def the_same(thing: Any) -> Made:
    return thing, thing


def closure() -> Made:
    counts = [0]

    def count() -> int:
        counts[0] += 1
        return counts[0]

    return count, counts


def closure_over_a_number() -> Made:
    number = 0

    def count() -> int:
        nonlocal number
        number += 1
        return number

    return count, None


def closure_over_a_generator() -> Made:
    generator = torch.Generator().manual_seed(1)
    return lambda: torch.rand(1, generator=generator).item(), generator


def default_argument() -> Made:
    counts = [0]

    def count(held: list[int] = counts) -> int:
        held[0] += 1
        return held[0]

    return count, counts


def keyword_default() -> Made:
    counts = {"n": 0}

    def count(*, held: dict[str, int] = counts) -> int:
        held["n"] += 1
        return held["n"]

    return count, counts


def increase(counts: list[int]) -> int:
    counts[0] += 1
    return counts[0]


def partial() -> Made:
    counts = [0]
    return functools.partial(increase, counts), counts


def bound_method() -> Made:
    holder = Holder()
    return holder.add, holder


def decorated() -> Made:
    counts = [0]

    @functools.wraps(increase)
    def wrapper() -> int:
        return increase(counts)

    return wrapper, counts


def attribute_of_function() -> Made:
    def count() -> int:
        count.calls += 1  # type: ignore[attr-defined]
        return count.calls  # type: ignore[attr-defined, no-any-return]

    count.calls = 0  # type: ignore[attr-defined]
    return count, None


def numbers() -> Iterator[float]:
    n = 0.0
    while True:
        n += 1
        yield n


def schedule() -> Made:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.8)
    return (optimizer, schedule), {"optimizer": optimizer, "schedule": schedule}


def step_schedule(held: Any) -> float:
    optimizer, schedule = held
    optimizer.step()
    schedule.step()
    return float(optimizer.param_groups[0]["lr"])


def second_optimizer() -> Made:
    model = nn.Linear(1, 1)
    nn.init.zeros_(model.weight)
    adam = torch.optim.Adam(model.parameters(), lr=0.1)
    return (model, adam), {"second": model, "adam": adam}


def step_second(held: Any) -> float:
    model, adam = held
    adam.zero_grad()
    (model(torch.ones(1, 1)) - 1).square().sum().backward()
    adam.step()
    return float(model.weight.item())


def scaler() -> Made:
    held = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=1)
    held.scale(torch.ones(1))
    return held, held


def step_scaler(held: Any) -> float:
    parameter = nn.Parameter(torch.ones(1))
    parameter.grad = torch.zeros(1)
    held.step(torch.optim.SGD([parameter], lr=0.1))
    held.update()
    return float(held.get_scale()) / 1000


def moved(held: nn.Module) -> float:
    """As MoCo moves its key encoder: past autograd's count of versions."""
    for parameter in held.parameters():
        parameter.data = parameter.data * 0.9 + 0.1
    return float(next(held.parameters()).sum())


def key_encoder() -> nn.Module:
    held = nn.Linear(1, 1)
    nn.init.zeros_(held.weight)
    nn.init.zeros_(held.bias)
    return held


def ema() -> nn.Module:
    return torch.optim.swa_utils.AveragedModel(
        key_encoder(), avg_fn=lambda old, new, _: 0.5 * old + 0.5 * new
    )


def step_ema(held: Any) -> float:
    other = copy.deepcopy(held.module)
    nn.init.constant_(other.weight, float(held.n_averaged) + 1)
    held.update_parameters(other)
    return float(held.module.weight.item())


def add_to(thing: Any, name: Any, change: Callable[[Any], Any] = lambda value: value + 1) -> float:
    if isinstance(name, str) and not isinstance(thing, dict):
        setattr(thing, name, change(getattr(thing, name)))
        return 1.0
    thing[name] = change(thing[name])
    return 1.0


def in_attribute(change: Callable[[Any], Any], number: Callable[[Any], float]) -> Callable[[Holder], float]:
    def step(held: Holder) -> float:
        held.value = change(held.value)
        return number(held.value)

    return step


def call(held: Callable[[], float]) -> float:
    return float(held())


def step_slots(held: Slots) -> float:
    held.count += 1
    return held.count


def step_table(held: Table) -> float:
    held.count += 1
    return held.count


def step_class(held: OnClass) -> float:
    type(held).count += 1
    return held.count


def step_module(_: Any) -> float:
    return module_of_script.next_count()


def step_table_of_module(held: Any) -> float:
    held.TABLE["count"] += 1
    return float(held.TABLE["count"])


def step_options(held: Options) -> float:
    held.seen.append(len(held.seen))
    held.slope += 0.5
    return held.slope + sum(held.seen)


def step_nested(held: Holder) -> float:
    held.value[0].value["a"].add()
    return float(held.value[0].value["a"].value)


def step_noise(held: Noise) -> float:
    return torch.rand(1, generator=held.inner[0].generators[0]).item()  # type: ignore[union-attr, index]


def step_smoothing(held: nn.CrossEntropyLoss) -> float:
    held.label_smoothing += 0.01
    return held.label_smoothing


def step_center(held: Criterion) -> float:
    held.center.mul_(0.5).add_(1)
    return float(held.center)


def step_average(held: Average) -> float:
    held.count += 1
    held.mean = held.mean + held.count
    return float(held.mean)


def step_list(held: list[float]) -> float:
    held.append(len(held) + 1.0)
    return sum(held)


def step_deque(held: deque[float]) -> float:
    held.append(held[-1] + 1)
    return sum(held)


def step_set(held: set[int]) -> float:
    held.add(len(held))
    return len(held)


def step_text(held: Holder) -> float:
    held.value += "x"
    return len(held.value)


def step_keyed(held: dict[Any, int]) -> float:
    held[0, "a"] += 1
    return held[0, "a"]


def advance(held: Any) -> float:
    got = next(held)
    return float(got if isinstance(got, (int, float)) else got.sum())


def loader_of(held: Any) -> Made:
    return held, None


class Recurrent:
    """Truncated back-propagation: the state keeps its graph until the next step detaches it."""

    def __init__(self) -> None:
        self.weight = torch.ones(1, dtype=torch.float64, requires_grad=True)
        self.value = torch.zeros(1, dtype=torch.float64)

    def add(self) -> torch.Tensor:
        self.value = self.value.detach() * 0.5 + self.weight
        return self.value.detach()


class OfLibrary(nn.Module):
    """An average of weights whose class an installed library has."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(1, dtype=torch.float64))
        self.mean: torch.Tensor

    def add(self) -> float:
        self.mean.mul_(0.5).add_(1.0)
        return self.mean.item()


OfLibrary.__module__ = "numpy"


def second_data() -> DataLoader[Any]:
    return DataLoader(torch.arange(20.0), batch_size=1)  # type: ignore[arg-type]


def endless(loader: Iterable[Any]) -> Iterator[Any]:
    while True:
        for batch in loader:  # noqa: UP028
            yield batch


def endless_from(loader: Iterable[Any]) -> Iterator[Any]:
    while True:
        yield from loader


PROGRAMS: dict[str, tuple[Callable[[], Made], Callable[[Any], float]]] = {
    "a tensor with its graph": (lambda: the_same(Recurrent()), lambda held: float(held.add())),
    "a module of a library": (lambda: the_same(OfLibrary()), lambda held: float(held.add())),
    # ---- containers and numbers
    "list": (lambda: the_same([]), step_list),
    "dict": (lambda: the_same({"n": 0.0}), lambda held: add_to(held, "n") * held["n"]),
    "dict by tuples": (lambda: the_same({(0, "a"): 1}), step_keyed),
    "set": (lambda: the_same({0}), step_set),
    "deque": (lambda: the_same(deque([0.0], maxlen=3)), step_deque),
    "Counter": (lambda: the_same(Counter(a=0)), lambda held: add_to(held, "a") * held["a"]),
    "defaultdict": (lambda: the_same(defaultdict(float)), lambda held: add_to(held, "a") * held["a"]),
    "OrderedDict": (lambda: the_same(OrderedDict(a=0)), lambda held: add_to(held, "a") * held["a"]),
    "array": (lambda: the_same(np.zeros(3)), lambda held: add_to(held, 1) * held[1]),
    "tensor": (lambda: the_same(torch.zeros(3)), lambda held: add_to(held, 1) * held[1].item()),
    # ---- attributes
    "attribute": (lambda: the_same(Holder()), in_attribute(lambda n: n + 1, float)),
    "NumPy number": (lambda: the_same(Holder(np.float32(0))), in_attribute(lambda n: n + 1, float)),
    "text": (lambda: the_same(Holder("")), step_text),
    "named tuple": (
        lambda: the_same(Holder(Pair(0, 1))),
        in_attribute(lambda pair: Pair(pair.high, pair.low + pair.high), sum),
    ),
    "enum": (
        lambda: the_same(Holder(Phase.WARM)),
        in_attribute(lambda phase: Phase(phase.value % 3 + 1), lambda phase: float(phase.value)),
    ),
    "frozen options": (
        lambda: the_same(Holder(Options())),
        in_attribute(lambda one: replace(one, slope=one.slope + 1), lambda one: one.slope),
    ),
    "dataclass": (lambda: the_same(Options()), step_options),
    "namespace": (lambda: the_same(SimpleNamespace(n=0)), lambda held: add_to(held, "n") * held.n),
    "slots": (lambda: the_same(Slots()), step_slots),
    "property over a dict": (lambda: the_same(Table()), step_table),
    "nested objects": (lambda: the_same(Holder([Holder({"a": Holder()})])), step_nested),
    "more than its state_dict": (lambda: the_same(Average()), step_average),
    # ---- functions, classes, modules
    "closure": (closure, call),
    "closure over a number": (closure_over_a_number, call),
    "closure over a generator": (closure_over_a_generator, call),
    "default argument": (default_argument, call),
    "keyword default": (keyword_default, call),
    "partial": (partial, call),
    "bound method": (bound_method, call),
    "decorated": (decorated, call),
    "attribute of a function": (attribute_of_function, call),
    "class attribute": (lambda: (OnClass(), None), step_class),
    "number of a module": (lambda: (module_of_script, None), step_module),
    "table of a module": (lambda: (module_of_script, module_of_script.TABLE), step_table_of_module),
    # ---- generators of random numbers
    "torch.Generator": (
        lambda: the_same(torch.Generator().manual_seed(1)),
        lambda held: torch.rand(1, generator=held).item(),
    ),
    "random.Random": (lambda: the_same(random.Random(1)), lambda held: held.random()),
    "numpy.random": (lambda: the_same(np.random.default_rng(1)), lambda held: held.random()),
    "RandomState": (lambda: the_same(np.random.RandomState(1)), lambda held: held.rand()),
    "generator in a list of a module of a module": (lambda: the_same(Noise()), step_noise),
    # ---- torch's objects
    "weights moved by .data": (lambda: the_same(key_encoder()), moved),
    "label_smoothing": (lambda: the_same(nn.CrossEntropyLoss()), step_smoothing),
    "buffer of a criterion": (lambda: the_same(Criterion()), step_center),
    "schedule": (schedule, step_schedule),
    "second optimizer": (second_optimizer, step_second),
    "GradScaler": (scaler, step_scaler),
    "AveragedModel": (lambda: the_same(ema()), step_ema),
    "momentum by parameter": (lambda: the_same(OwnMomentum()), OwnMomentum.step),
    # ---- iterators
    "generator function": (lambda: (numbers(), None), advance),
    "count": (lambda: (itertools.count(), None), advance),
    "iterator of a list": (lambda: (iter([1.0, 2.0, 4.0] * 9), None), advance),
    "iterator of a dict": (lambda: (iter({n: n for n in range(20)}), None), advance),
    "cycle": (lambda: (itertools.cycle([1, 2, 5]), None), advance),
    "map": (lambda: (map(float, iter(range(20))), None), advance),
    "iter(DataLoader)": (
        lambda: loader_of(iter(DataLoader(torch.arange(20.0), batch_size=1))),  # type: ignore[arg-type]
        advance,
    ),
    "endless generator over a DataLoader": (lambda: loader_of(endless(second_data())), advance),
    "endless generator that yields from it": (lambda: loader_of(endless_from(second_data())), advance),
    "cycle over a DataLoader": (
        lambda: loader_of(itertools.cycle(DataLoader(torch.arange(3.0), batch_size=1))),  # type: ignore[arg-type]
        advance,
    ),
}
