"""Generators that the code of a data set reads are found, and seeded per sample as those in its attributes are."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import drawing_module
import numpy
import pytest
import torch
from drawing_module import drawn
from torch import nn
from torch.utils.data import Dataset, Subset, default_collate

import rankup
from ranks import run_ranks
from rankup.runtime.data.generators import held_generators

RNG = numpy.random.default_rng(0)
OTHER = random.Random(0)
SYSTEM = random.SystemRandom()
draw = OTHER.random
LENGTH = 12


def made(getitem: Any, **members: Any) -> Dataset[Any]:
    return type("Made", (Dataset,), {"__getitem__": getitem, "__len__": lambda self: LENGTH} | members)()


def through_a_function(self: Any, index: int) -> float:
    return index + noise()


def noise() -> float:
    return float(RNG.random())


def within(self: Any, index: int) -> list[float]:
    def inner() -> float:
        return OTHER.random()

    return [index + inner()]


def enclosed() -> Any:
    own = torch.Generator()
    return lambda self, index: torch.rand(1, generator=own), own


class Base(Dataset[Any]):
    rng = OTHER

    def __getitem__(self, index: int) -> float:
        return index + self.rng.random()


class Inheriting(Base):
    pass


class WithProperty(Dataset[Any]):
    @property
    def noise(self) -> float:
        return OTHER.random()


class InSlots:
    __slots__ = ("rng",)

    def __init__(self, rng: Any) -> None:
        self.rng = rng


BITS = numpy.random.PCG64(0)
closure, CLOSED = enclosed()
FOUND: dict[str, tuple[Any, Any]] = {
    "a variable of the module": (made(lambda self, index: RNG.random()), RNG),
    "through a function": (made(through_a_function), RNG),
    "within a function": (made(within), OTHER),
    "a closure": (made(closure), CLOSED),
    "a bound method": (made(lambda self, index: draw()), OTHER),
    "an attribute of the class's base": (Inheriting(), OTHER),
    "a property": (WithProperty(), OTHER),
    "a static method": (made(None, noise=staticmethod(noise)), RNG),
    "of another module": (made(lambda self, index: drawing_module.RNG.random()), drawing_module.RNG),
    "a function of another module": (made(lambda self, index: drawn()), drawing_module.RNG),
    "slots": (made(None, transform=InSlots(OTHER)), OTHER),
    "what a generator draws from": (made(lambda self, index: BITS.random_raw()), BITS),
    "a transform": (Subset(made(None, transforms=[partial(noise)]), [0]), RNG),
}


@pytest.mark.parametrize("where", FOUND)
def test_a_generator_that_the_code_reads_is_found(where):
    data, generator = FOUND[where]
    assert [id(each) for each in held_generators(data)] == [id(generator)]


def test_others_are_not():
    # An attribute has the name of a variable; the operating system's has no state; a library's own is not looked for.
    assert held_generators(made(lambda self, index: self.RNG + SYSTEM.random())) == []
    assert held_generators((made(lambda self, index: index), default_collate, torch.save)) == []


def drawing(self: Any, index: int) -> torch.Tensor:
    return torch.tensor([float(index), RNG.random()], dtype=torch.float64)


def collated(samples: list[Any]) -> torch.Tensor:
    return torch.stack(samples) + OTHER.random()


class Drawing(Dataset[Any]):
    __getitem__ = drawing

    def __len__(self) -> int:
        return LENGTH


def trained(workers: int, at: tuple[int, int], collate: Any = None) -> list[tuple[int, float, float]]:
    """(epoch, sample, what was drawn with it), from a place in the training on."""
    RNG.random(run_of_its_own := at[1] + workers)  # a process is at another place of the generator
    run = rankup.init(seed=1, precision="fp64")
    RNG.random(run.world.rank + run_of_its_own)
    options = {"num_workers": workers, "multiprocessing_context": "fork"} if workers else {}
    _, _, data = run.prepare(
        nn.Linear(2, 1),
        None,
        Drawing(),
        global_batch=4,
        **options | ({"collate_fn": collate} if collate else {}),
    )
    data.position.go_to(*at)
    seen: list[tuple[int, float, float]] = []
    for epoch in run.epochs(2, data):
        for batch in epoch:
            if run.batch.samples:
                seen += [(epoch.index, *row) for row in batch.tolist()]
    return seen


@pytest.mark.parametrize(("world_size", "workers"), [(1, 1), (2, 0)])
def test_what_it_gives_depends_on_the_sample_alone(world_size, workers):
    (whole,) = run_ranks(trained, 1, 0, (0, 0))
    others = run_ranks(trained, world_size, workers, (1, 1))
    rest = whole[-2 * 4 :]
    assert sorted(sum(others, [])) == sorted(rest)
    assert len({number for _, _, number in whole}) == 2 * LENGTH


def test_what_a_collate_fn_draws_from_it_is_the_same_after_a_resume():
    (whole,) = run_ranks(trained, 1, 0, (0, 0), collated)
    (rest,) = run_ranks(trained, 1, 1, (1, 1), collated)
    assert rest == whole[-2 * 4 :]
