"""Data that differs between ranks is an error before the first step; what only looks like it is none."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import rankup
from ranks import run_ranks
from rankup.errors import RankupError
from rankup.runtime.data.identity import identify


class Made(Dataset[Any]):
    """``made(i)`` for each of ``length`` samples; who fetched is noted."""

    def __init__(self, made: Any, length: int = 20) -> None:
        self.made, self.length, self.fetched_here = made, length, 0

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        self.fetched_here += 1
        return self.made(index)


class Opaque:
    def __init__(self, value: int) -> None:
        self.value = value


def rank() -> int:
    return int(os.environ["RANK"])


def crash(index: int) -> Any:
    raise OSError("no such file") if rank() == 1 else KeyError(index)


def unseeded() -> float:
    return random.SystemRandom().random()


DIFFERENT: dict[str, Any] = {
    "made before init": lambda: rankup.ResidentData(
        torch.randn(20, 2, generator=torch.Generator().manual_seed(rank()))
    ),
    "another length": lambda: Made(float, 20 + rank()),
    "another last sample": lambda: Made(lambda i: float(i + (i == 19) * rank())),
    "an array": lambda: Made(lambda i: torch.full((3,), i + rank()).numpy()),
    "nested": lambda: Made(lambda i: {"x": [i, (rank(), "a")]}),
    "a tensor data set": lambda: TensorDataset(torch.full((20, 1), float(rank()))),
    "unreadable on one rank": lambda: Made(crash),
}
SAME: dict[str, Any] = {
    "augmented": lambda: Made(lambda i: torch.rand(3) + random.random()),
    "noisy": lambda: Made(lambda i: unseeded()),
    "opaque": lambda: Made(Opaque),
    "plain": lambda: Made(float),
}


def compared(workers: int) -> dict[str, Any]:
    run = rankup.init(seed=1)
    found: dict[str, Any] = {}
    for name, make in (DIFFERENT | SAME).items():
        data = make()
        loader = (
            {"num_workers": workers, "multiprocessing_context": "fork"}
            if workers and isinstance(data, Dataset)
            else {}
        )
        before = torch.get_rng_state(), random.getstate()
        for _ in range(2):  # found out once; a second time it is not looked at again
            try:
                run._preparation._same_data.check(data, loader)
                found.setdefault(name, None)
            except RankupError as error:
                found.setdefault(name, (error.code, error.message))
        assert torch.equal(before[0], torch.get_rng_state()) and before[1] == random.getstate(), name
        if workers:
            assert getattr(data, "fetched_here", 0) == 0, name
    return found


@pytest.mark.slow
def test_data_of_each_ranks_own_is_an_error_that_names_what_differs():
    for workers in (0, 1):
        for found in run_ranks(compared, 3, workers):
            assert {name for name, error in found.items() if error is not None} == DIFFERENT.keys()
            assert all(error[0] == "data-differ" for error in found.values() if error is not None)
            assert "20 samples on rank 0, 21 on rank 1" in found["another length"][1]
            assert "sample 19" in found["another last sample"][1]


def refused() -> tuple[str, str]:
    """By prepare, and by the first evaluation."""
    run = rankup.init()
    codes = []
    try:
        run.prepare(nn.Linear(1, 1), None, Made(lambda i: float(rank())), global_batch=4)
    except RankupError as error:
        codes.append(error.code)
    try:
        list(run.batches(Made(lambda i: float(rank()))))
    except RankupError as error:
        codes.append(error.code)
    return tuple(codes)


def test_prepare_and_an_evaluation_refuse_it():
    assert run_ranks(refused, 2) == [("data-differ", "data-differ")] * 2


def test_an_identity_changes_with_the_data_alone():
    def make(shift: float = 0.0) -> Made:
        return Made(lambda i: torch.rand(2) + i + shift)

    assert str(identify(make(), 1, {})) == str(identify(make(), 1, {}))
    assert str(identify(make(), 1, {})) != str(identify(make(0.5), 1, {}))
