"""A data set that keeps what it has drawn gives other samples after a resume: rank 0 warns, and of no other."""

from __future__ import annotations

import random

import pytest
import torch
from torch.utils.data import Dataset, default_collate

from rankup.runtime.data.sample_rng import KeyedFetch

SAID = "draws random numbers when a sample is fetched for the first time"


class Cached(Dataset):
    """Augments a sample once."""

    def __init__(self) -> None:
        self.kept: dict[int, torch.Tensor] = {}

    def __getitem__(self, number: int) -> torch.Tensor:
        if number not in self.kept:
            self.kept[number] = number + torch.randn(2)
        return self.kept[number]


class CachedWithoutDraws(Cached):
    def __getitem__(self, number: int) -> torch.Tensor:
        return self.kept.setdefault(number, torch.full((2,), float(number)))


class Augmented(Dataset):
    def __getitem__(self, number: int) -> torch.Tensor:
        return number + torch.randn(2)


class DrawsOnce(Dataset):
    """A draw for all samples, when the first one is fetched."""

    def __init__(self) -> None:
        self.shift: float | None = None

    def __getitem__(self, number: int) -> torch.Tensor:
        if self.shift is None:
            self.shift = random.random()
        return torch.full((2,), number + self.shift)


def said_of(dataset: Dataset, capsys, *, warns: bool = True) -> int:
    fetch = KeyedFetch(dataset, default_collate, 0, None, warns=warns)
    for low in range(0, 12, 4):
        numbers = list(range(low, low + 4))
        _ = fetch[0, numbers, numbers]
    return capsys.readouterr().err.count(SAID)


def test_a_cache_of_augmented_samples_is_warned_of_once(capsys):
    assert said_of(Cached(), capsys) == 1
    assert said_of(Cached(), capsys, warns=False) == 0


@pytest.mark.parametrize("dataset", [CachedWithoutDraws, Augmented, DrawsOnce])
def test_other_data_sets_are_not_warned_of(dataset, capsys):
    assert said_of(dataset(), capsys) == 0
