"""Generators that a data set makes as it fetches a sample are seeded per sample too; what cannot be seeded is said."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, default_collate

import rankup
from ranks import run_ranks
from rankup.runtime.data.generators import reseed_own, set_state, state_of
from rankup.runtime.data.sample_rng import KeyedFetch

LATER = "makes a random generator when a later sample"
UNLIKE = "is another one each time it is fetched"
GENERATORS = {
    "torch": torch.Generator,
    "Python": random.Random,
    "NumPy": numpy.random.default_rng,
    "NumPy's older": numpy.random.RandomState,
    "bits": numpy.random.PCG64,
    "Mersenne bits": numpy.random.MT19937,
}


def drawn(generator: Any) -> float:
    if isinstance(generator, torch.Generator):
        return torch.rand((), generator=generator).item()
    raw = getattr(generator, "random_raw", None)
    return raw() / 2**64 if raw else generator.random() if hasattr(generator, "random") else generator.rand()


@pytest.mark.parametrize("kind", GENERATORS)
def test_a_generator_of_each_kind_is_seeded_and_put_back(kind):
    generator = GENERATORS[kind]()
    reseed_own(generator, 2**62 + 1)
    state = state_of(generator)
    first = drawn(generator)
    assert state_of(generator) != state
    set_state(generator, state)
    assert drawn(generator) == first
    reseed_own(generator, 2**62 + 1)
    assert drawn(generator) == first


class MadeAtFirst(Dataset[Any]):
    """As one that seeds its generator by the worker: in each process another one."""

    process = 0

    def __init__(self, kind: str = "NumPy", since: int = 0) -> None:
        self.kind, self.since, self.rng = kind, since, None

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.rng is None and index >= self.since:
            MadeAtFirst.process += 1
            self.rng = GENERATORS[self.kind]()
            reseed_own(self.rng, self.process)
        return torch.tensor([index, drawn(self.rng) if self.rng else 0.0])


class MadeEachTime(MadeAtFirst):
    def __getitem__(self, index: int) -> torch.Tensor:
        self.rng = numpy.random.default_rng(index)
        return torch.tensor([index, self.rng.random()])


def fetched(data: Dataset[Any], *, low: int = 0, sample_rng: bool | None = None) -> torch.Tensor:
    """By a new process, from a batch on."""
    fetch = KeyedFetch(data, default_collate, 0, sample_rng, warns=True)
    batches = [list(range(start, start + 2)) for start in range(low, 12, 2)]
    return torch.cat([fetch[0, numbers, numbers] for numbers in batches])


@pytest.mark.parametrize("sample_rng", [None, True])
@pytest.mark.parametrize("kind", GENERATORS)
def test_what_it_gives_depends_on_the_sample_alone(kind, sample_rng, capsys):
    whole = fetched(MadeAtFirst(kind), sample_rng=sample_rng)
    assert len({value for _, value in whole.tolist()}) == 12
    assert torch.equal(fetched(MadeAtFirst(kind), low=4, sample_rng=sample_rng), whole[4:])
    assert capsys.readouterr().err == ""


def test_one_that_is_made_later_is_seeded_from_then_on_and_said(capsys):
    whole = fetched(MadeAtFirst(since=2), sample_rng=True)
    assert capsys.readouterr().err.count(LATER) == 1
    assert torch.equal(fetched(MadeAtFirst(since=2), low=2, sample_rng=True), whole[2:])
    assert capsys.readouterr().err == ""


def test_one_that_each_sample_makes_for_itself_is_left_alone(capsys):
    whole = fetched(MadeEachTime())
    assert whole[5, 1] == numpy.float32(numpy.random.default_rng(5).random())
    assert capsys.readouterr().err == ""


def test_in_the_ranks_own_process_the_state_is_put_back():
    data = MadeAtFirst()
    fetched(data)
    state = state_of(data.rng)
    fetched(data)
    assert state_of(data.rng) == state


# ------------------------------------------------------------------ what cannot be seeded


class Opaque:
    pass


class Of(Dataset[Any]):
    def __init__(self, kind: str) -> None:
        self.kind, self.rng, self.count = kind, random.Random(3), 0

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        self.count += 1
        return {
            "system": lambda: torch.tensor([random.SystemRandom().random()]),
            "new": lambda: torch.tensor([numpy.random.default_rng().random()]),
            "counted": lambda: torch.tensor([float(self.count)]),
            "own": lambda: torch.tensor([self.rng.random()]),
            "global": lambda: torch.rand(1),
            "plain": lambda: torch.tensor([float(index)]),
            "opaque": lambda: {"x": torch.zeros(1), "object": Opaque()},
        }[self.kind]()


def tensors(samples: list[Any]) -> torch.Tensor:
    return torch.stack([sample["x"] if isinstance(sample, dict) else sample for sample in samples])


def said_of(kind: str, directory: str, sample_rng: bool | None, workers: int) -> int:
    directory = f"{directory}/{kind}{sample_rng}"
    Path(directory).mkdir(exist_ok=True)
    os.environ["RANKUP_RUN_DIR"] = directory
    said: list[str] = []
    from rankup.runtime.checkpointing import settings

    settings.say = said.append
    run = rankup.init()
    options = {"num_workers": workers, "multiprocessing_context": "fork"} if workers else {}
    model, opt, data = run.prepare(
        nn.Linear(1, 1),
        lambda p: torch.optim.SGD(p, lr=0.1),
        Of(kind),
        global_batch=2,
        sample_rng=sample_rng,
        collate_fn=tensors,
        **options,
    )
    run.forget("count")
    for epoch in run.epochs(2, data):
        for x in epoch:
            run.backward(model(x).mean())
            run.step(opt)
    assert all(UNLIKE in each for each in said)
    return len(said)


@pytest.mark.parametrize(
    ("kind", "times"),
    [("system", 1), ("new", 1), ("counted", 1), ("own", 0), ("global", 0), ("plain", 0), ("opaque", 0)],
)
def test_a_sample_that_is_another_each_time_is_said_once(kind, times, tmp_path: Path):
    assert run_ranks(said_of, 1, kind, str(tmp_path), None, kind == "new") == [times]


def test_main_says_it_and_nobody_where_numbers_do_not_matter(tmp_path: Path):
    assert run_ranks(said_of, 2, "system", str(tmp_path), None, 0) == [1, 0]
    assert run_ranks(said_of, 1, "system", str(tmp_path), False, 0) == [0]
