"""Registered objects of the script go on where they were, on every rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

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


@pytest.mark.parametrize("world_size", [1, 2, 3])
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
