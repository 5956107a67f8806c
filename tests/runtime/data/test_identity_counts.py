"""The comparison of a data set reads samples of it: it must not move what the data set counts as it is read."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch.utils.data import Dataset, Subset

from rankup.runtime.data.identity import identify


class Ring(Dataset[Any]):
    """Each sample takes the next place of a table, as negative samples of word2vec do."""

    def __init__(self) -> None:
        self.place = 0

    def __len__(self) -> int:
        return 8

    def __getitem__(self, number: int) -> torch.Tensor:
        self.place = (self.place + 1) % 7
        return torch.tensor([number, self.place])


class Prepared(Ring):
    """It makes what it needs with its first sample, and a flag says that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.made = False
        self.order: torch.Tensor | None = None

    def __getitem__(self, number: int) -> torch.Tensor:
        if not self.made:
            self.order, self.made = torch.randperm(8), True
        return super().__getitem__(number)


class Counting(Ring):
    """A count, and noise of its own; the one is not made from the other."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = random.Random(0)

    def __getitem__(self, number: int) -> torch.Tensor:
        super().__getitem__(number)
        return torch.tensor([number, self.rng.random()])


def test_what_a_data_set_counts_is_where_it_was():
    data = Ring()
    assert identify(Subset(data, range(4)), 0, {}).counted == ("place",)
    assert data.place == 0


def test_a_count_that_samples_are_not_made_of_is_not_named():
    data = Counting()
    assert identify(data, 0, {}).counted == ()
    assert data.place == 0


def test_a_flag_of_what_is_kept_stays():
    data = Prepared()
    identify(data, 0, {})
    assert data.made
    assert data.order is not None
