"""What somebody registers after a snapshot has noted it: a plain value is found in it again, another thing is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import rankup
from ranks import run_ranks
from rankup.errors import RankupError

KILLED = 5


def train(folder: Path, killed: int | None, register: bool) -> Any:
    run = rankup.init(snapshots=rankup.Snapshots(every="2 steps", directory=folder, asynchronous=False))
    data = rankup.ResidentData(torch.linspace(-1, 1, 10)[:, None])
    model, opt, data = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=4
    )
    sched = torch.optim.lr_scheduler.StepLR(opt, 1, 0.9)
    seen: list[int] = []
    values = run.register(sched=sched, best=0, seen=seen) if register else None
    best = 0
    for x in run.steps(data, epochs=3):
        if run.global_step == killed:
            return None
        model(x).square().mean().backward()
        opt.step()
        opt.zero_grad()
        sched.step()
        seen.append(run.global_step)
        if values is None:
            best += 1
        else:
            values.best += 1
    return values.best if values is not None else best, seen, sched.last_epoch


def outcome(folder: Path, killed: int | None, register: bool) -> Any:
    try:
        return train(folder, killed, register)
    except RankupError as error:
        return error.code, str(error), error.hint


@pytest.fixture
def snapshots(tmp_path: Path) -> Path:
    """Of a training that registers nothing and is killed."""
    run_ranks(train_unregistered, 1, tmp_path)
    return tmp_path


def train_unregistered(folder: Path) -> None:
    train(folder, KILLED, register=False)


def test_a_schedule_that_is_registered_too_late_is_lost_and_the_error_says_so(snapshots: Path):
    ((code, error, hint),) = run_ranks(outcome, 1, snapshots, None, True)
    assert code == "state-lost" and "sched" in error
    assert "best" not in error and "seen" not in error
    assert "the next snapshots have sched, but this one has not" in hint and "run.register(" not in hint


def test_if_that_is_accepted_the_plain_values_are_found_again_and_the_next_snapshots_have_all(
    snapshots: Path,
):
    accept = {"RANKUP_LOST": "accept"}
    assert run_ranks(outcome, 1, snapshots, KILLED + 2, True, env=accept) == [None]
    ((best, seen, steps),) = run_ranks(outcome, 1, snapshots, None, True)  # registered in that snapshot
    assert (best, len(seen)) == (9, 9) and steps == 5  # it began anew after step 4


def train_with(folder: Path, killed: int | None, thing: Any) -> Any:
    run = rankup.init(snapshots=rankup.Snapshots(every="2 steps", directory=folder, asynchronous=False))
    data = rankup.ResidentData(torch.linspace(-1, 1, 10)[:, None])
    model, opt, data = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=4
    )
    best, bad = 0, 7
    values = run.register(best=best, bad=bad) if thing == "plain" else None
    if thing == "state":
        run.register(sched=torch.optim.lr_scheduler.StepLR(opt, 1, 0.9))
    try:
        for x in run.steps(data, epochs=3):
            if run.global_step == killed:
                return None
            model(x).square().mean().backward()
            opt.step()
            opt.zero_grad()
            best += 1
            if values is not None:
                values.best += 1
    except RankupError as error:
        return error.code, error.hint
    return (values.best, values.bad) if values is not None else best


def test_a_plain_value_that_had_not_changed_begins_with_the_scripts(tmp_path: Path):
    run_ranks(train_with, 1, tmp_path, KILLED, None)
    assert run_ranks(train_with, 1, tmp_path, None, "plain") == [(9, 7)]


def test_an_object_with_a_state_that_no_snapshot_has_is_refused(tmp_path: Path):
    run_ranks(train_with, 1, tmp_path, KILLED, None)
    ((code, hint),) = run_ranks(train_with, 1, tmp_path, None, "state", env={"RANKUP_LOST": "accept"})
    assert code == "other-registered" and "would begin anew" in hint
