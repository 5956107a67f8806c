"""Tensors that training does not change must be alike in each attempt: else a resume trains another model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import nn

import rankup
from ranks import run_ranks
from rankup.errors import RankupError

X = torch.linspace(-1, 1, 12, dtype=torch.float64)[:, None]  # three steps in an epoch


def random_features(seed: int | None) -> torch.Tensor:
    return torch.from_numpy(numpy.random.default_rng(seed).normal(size=(1, 2)))


def train(folder: Path, killed: int | None, seed: int | None, how: str = "") -> tuple[str, list[Any]]:
    run = rankup.init(
        snapshots=rankup.Snapshots(
            every="2 steps", directory=folder, asynchronous=False, lost="accept" if how == "accept" else None
        ),
        precision="fp64",
    )
    model, opt, data = run.prepare(
        nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1), rankup.ResidentData(X), global_batch=4
    )
    projection = random_features(seed)
    teacher = nn.Linear(1, 1).double()
    share = torch.full((1,), float(run.world.world_size))  # of a rank: another one on other numbers of ranks
    unused = numpy.random.default_rng()
    if how == "register":
        run.register(projection=projection)
    if how == "forget":
        run.forget("projection")
    try:
        for epoch in run.epochs(4):
            for x in epoch:
                if run.global_step == killed:
                    return "killed", []
                (
                    model(torch.cos(x @ projection)) - teacher(x).detach() * share / share
                ).square().mean().backward()
                opt.step()
                opt.zero_grad()
    except RankupError as error:
        return f"{error.code}: {error}", []
    assert unused is not None
    return "", [value.tolist() for value in model.state_dict().values()]


def attempts(folder: Path, seed: int | None, how: str = "", killed: int = 5) -> tuple[str, list[Any]]:
    assert run_ranks(train, 1, folder, killed, seed, how)[0][0] == "killed"
    return run_ranks(train, 1, folder, None, seed, how)[0]


def test_a_constant_that_no_seed_fixes_stops_a_resume(tmp_path: Path):
    said, _ = attempts(tmp_path, None)
    assert said.startswith(
        "state-lost: this resume would go on with other constants than the run has had: projection"
    )
    assert "teacher" not in said  # rankup has seeded it


def test_a_seeded_constant_is_the_same_and_nothing_is_said(tmp_path: Path):
    (whole,) = run_ranks(train, 1, tmp_path / "whole", None, 3)
    assert attempts(tmp_path / "cut", 3) == whole


def test_a_registered_constant_goes_on(tmp_path: Path):
    said, weights = attempts(tmp_path, None, "register")
    assert said == "" and weights


@pytest.mark.parametrize("how", ["accept", "forget"])
def test_a_resume_goes_on_with_another_constant_if_it_is_told_to(tmp_path: Path, how: str):
    said, weights = attempts(tmp_path, None, how)
    assert said == "" and weights


def test_constants_are_compared_again_after_a_second_resume(tmp_path: Path):
    for killed in (5, 9):
        assert run_ranks(train, 1, tmp_path, killed, 3)[0][0] == "killed"
    assert run_ranks(train, 1, tmp_path, None, 4)[0][0].startswith("state-lost")


def test_a_share_of_a_rank_may_change_with_the_number_of_ranks(tmp_path: Path):
    assert run_ranks(train, 1, tmp_path, 5, 3)[0][0] == "killed"
    assert [said for said, _ in run_ranks(train, 2, tmp_path, None, 3)] == ["", ""]
