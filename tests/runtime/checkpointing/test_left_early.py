"""Loops that are left before their end: what is saved, when a request to stop is heard, and where a resume goes on."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import rankup
from ranks import run_ranks
from rankup.runtime.checkpointing import saves, stop
from rankup.snapshots.layout import entries


def begin(folder: Path) -> tuple[rankup.Run, nn.Module, Any, Any]:
    stop.AGREE_EVERY_S = 0.0
    saves.KEEPING_SHARE = 0.0  # by the time of the copy, no machine would keep the same states
    run = rankup.init(snapshots=rankup.Snapshots(every="off", directory=folder), precision="fp64")
    data = rankup.ResidentData(torch.linspace(-1, 1, 32)[:, None])
    model, opt, feed = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=4
    )
    return run, model, opt, feed


def step(model: nn.Module, opt: Any, x: torch.Tensor) -> None:
    model(x).square().mean().backward()
    opt.step()
    opt.zero_grad()


def three_batches_an_epoch(folder: Path, stopped: bool) -> tuple[list[str], list[float]]:
    """What this attempt did, and its weights."""
    run, model, opt, feed = begin(folder)
    did = []
    try:
        for epoch in run.epochs(2):
            for number, x in enumerate(epoch):
                step(model, opt, x)
                did.append(f"step {epoch.index}-{number}")
                if number == 2:
                    break
            did.append(f"evaluation {epoch.index}")
            for _ in run.batches(feed_of(32), global_batch=8):
                if stopped and epoch.index == 0:
                    os.kill(os.getpid(), signal.SIGTERM)
    except SystemExit:
        did.append("stopped")
    return did, [value.item() for value in model.state_dict().values()]


def left_in_a_step(how: str, after: int) -> tuple[str, list[float], float]:
    """Which error the next epoch is; how far the weights were moved; and what is left of batch statistics."""
    exact = "any-world" if how == "any-world" else "same-world"
    run = rankup.init(precision="fp64", exact=exact)
    net = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
    data = rankup.ResidentData(torch.linspace(-1, 1, 32)[:, None])
    model, opt, feed = run.prepare(
        net,
        lambda p: torch.optim.SGD(p, lr=0.1),
        data,
        global_batch=16,
        accumulate=1 if how == "any-world" else 4,
    )
    said = "nothing"
    try:
        for epoch in run.epochs(2):
            for number, x in enumerate(epoch):
                run.backward((model(x) - x).square().mean())
                run.step(opt)
                if epoch.index == 0 and number == after:
                    break
    except rankup.RankupError as error:
        said = error.code
    return said, [p.item() for p in net.parameters()], net[1].running_mean.item()


@pytest.mark.parametrize("how", ["accumulate", "any-world"])
def test_what_a_break_left_of_a_step_never_counts_in_another(how: str):
    said, weights, statistics = run_ranks(left_in_a_step, 1, how, 5)[0]  # the second step has 4 parts
    assert said == "left-mid-step"
    whole_said, _, _ = run_ranks(left_in_a_step, 1, how, 3)[0]
    assert whole_said == "nothing"
    if how == "any-world":
        assert (weights, statistics) == run_ranks(one_step, 1)[0]


def one_step() -> tuple[list[float], float]:
    """The first step of the training above."""
    run = rankup.init(precision="fp64", exact="any-world")
    net = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
    data = rankup.ResidentData(torch.linspace(-1, 1, 32)[:, None])
    model, opt, feed = run.prepare(net, lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=16)
    for x in run.steps(feed, epochs=1):
        run.backward((model(x) - x).square().mean())
        if run.step(opt):
            break
    return [p.item() for p in net.parameters()], net[1].running_mean.item()


def saves_behind_the_loop(folder: Path) -> tuple[list[str], list[float]]:
    """What was evaluated; a request to stop comes in the evaluation behind the first epoch, which follows a save."""
    run, model, opt, feed = begin(folder)
    did = []
    try:
        for epoch in run.epochs(2):
            for x in epoch:
                step(model, opt, x)
            run.save()
            for _ in run.batches(feed_of(32), global_batch=8):
                if epoch.index == 0 and not (folder / "asked").exists():
                    (folder / "asked").touch()
                    os.kill(os.getpid(), signal.SIGTERM)
            did.append(f"evaluation {epoch.index}")
    except SystemExit:
        did.append("stopped")
    return did, [value.item() for value in model.state_dict().values()]


def test_a_request_behind_a_save_waits_for_the_code_of_that_epoch(tmp_path: Path):
    (first,) = run_ranks(saves_behind_the_loop, 1, tmp_path / "asked")
    (second,) = run_ranks(saves_behind_the_loop, 1, tmp_path / "asked")
    assert first[0] == ["evaluation 0", "stopped"]
    assert second[0] == ["evaluation 1"]
    (whole,) = run_ranks(saves_behind_the_loop, 1, tmp_path / "whole")
    assert whole == first


def raises_on_one_rank(folder: Path) -> str:
    run = rankup.init(snapshots=rankup.Snapshots(every="off", directory=folder), precision="fp64")
    net = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
    data = rankup.ResidentData(torch.linspace(-1, 1, 32)[:, None])
    model, opt, feed = run.prepare(net, lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=8)
    try:
        for epoch in run.epochs(1):
            for number, x in enumerate(epoch):
                if number == 1 and run.world.rank == 1:
                    raise ValueError("of this rank alone")
                step(model, opt, x)
    except ValueError:
        return "raised"
    except RuntimeError:
        return "lost its peer"
    return "nothing"


def test_a_rank_that_raises_waits_for_nobody_on_its_way_out(tmp_path: Path):
    assert run_ranks(raises_on_one_rank, 2, tmp_path) == ["lost its peer", "raised"]


def feed_of(samples: int) -> rankup.ResidentData:
    return rankup.ResidentData(torch.zeros(samples, 1))


def test_a_break_ends_its_epoch_also_for_a_resume_from_the_evaluation_behind_it(tmp_path: Path):
    ((whole, expected),) = run_ranks(three_batches_an_epoch, 1, tmp_path / "whole", False)
    ((before, _),) = run_ranks(three_batches_an_epoch, 1, tmp_path / "stopped", True)
    ((after, weights),) = run_ranks(three_batches_an_epoch, 1, tmp_path / "stopped", False)
    assert before == [*whole[:4], "stopped"]
    assert after == whole[4:]  # nothing else is saved, so that the run ended after the code for the epoch
    assert weights == expected


def asked_in_an_evaluation_that_is_left(folder: Path) -> list[str]:
    run, model, opt, feed = begin(folder)
    said = []
    try:
        for epoch in run.epochs(2):
            for x in epoch:
                step(model, opt, x)
            for name in ("validation", "test"):
                said.append(f"{name} {epoch.index}")
                for _ in run.batches(feed_of(32), global_batch=4):
                    if name == "validation":
                        os.kill(os.getpid(), signal.SIGTERM)
                        break
    except SystemExit as ended:
        said.append(f"ended with {ended.code}")
    return said


def test_a_request_in_an_evaluation_that_is_left_by_a_break_is_heard_by_the_next_who_asks(tmp_path: Path):
    for said in run_ranks(asked_in_an_evaluation_that_is_left, 2, tmp_path):
        assert said == ["validation 0", "test 0", "ended with 0"]
    assert [entry.path.name for entry in entries(tmp_path)] == ["step-8"]  # after the code for the epoch


def one_looks_at_less(folder: Path) -> float:
    run, *_ = begin(folder)
    for number, _ in enumerate(run.batches(feed_of(32), global_batch=4)):
        if number == run.world.rank:
            break
    return run.sum(run.world.rank + 1.0)


def test_ranks_that_look_at_unequally_much_of_an_evaluation_stay_in_step(tmp_path: Path):
    assert run_ranks(one_looks_at_less, 2, tmp_path) == [3.0, 3.0]


def two_loops(folder: Path) -> object:
    run, model, opt, feed = begin(folder)
    _, _, other = run.prepare(nn.Linear(1, 1), None, feed_of(8), global_batch=4)
    for epoch in run.epochs(3, feed):
        for x in epoch:
            step(model, opt, x)
        if epoch.index == 0:
            break
    try:
        for number, x in enumerate(run.steps(other, epochs=3)):
            step(model, opt, x)
            if number == 1:
                os.kill(os.getpid(), signal.SIGTERM)
    except SystemExit as ended:
        return ended.code
    return "went on"


def test_a_request_in_a_second_loop_saves_what_that_loop_has_done(tmp_path: Path):
    assert run_ranks(two_loops, 1, tmp_path) == [0]
    assert [entry.path.name for entry in entries(tmp_path / "stage-2")] == ["step-10"]


def good_enough(folder: Path) -> int:
    """Steps of this attempt, of which the second epoch is the last one wanted."""
    run, model, opt, feed = begin(folder)
    trained = 0
    for epoch in run.epochs(9):
        if epoch.index == 2:
            run.save()
            break
        for x in epoch:
            step(model, opt, x)
            trained += 1
    return trained


def test_who_leaves_early_can_save_first_and_a_resume_begins_there(tmp_path: Path):
    assert run_ranks(good_enough, 2, tmp_path) == [16, 16]
    assert [entry.path.name for entry in entries(tmp_path)] == ["step-16"]
    assert run_ranks(good_enough, 2, tmp_path) == [0, 0]


def saves_behind_a_break(folder: Path, registers: bool) -> tuple[int, str]:
    """Steps so far, and what rank 0 says; two epochs are trained in each attempt."""
    run, model, opt, _ = begin(folder)
    values = run.register(stopped=False)
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        for epoch in run.epochs(9):
            if registers and values.stopped:
                break
            for x in epoch:
                step(model, opt, x)
            if epoch.index % 2:
                values.stopped = True
                break
        run.save()
    return run.global_step, said.getvalue()


@pytest.mark.slow
def test_a_loop_that_goes_on_after_a_break_that_was_saved_behind_it_says_so(tmp_path: Path):
    first, _ = run_ranks(saves_behind_a_break, 2, tmp_path, False)
    second, other = run_ranks(saves_behind_a_break, 2, tmp_path, False)
    assert first == (16, "") and second[0] == 32 and other == (32, "")
    assert "step-16 was taken outside of the loop" in second[1] and "values.stopped = True" in second[1]


def test_a_loop_whose_script_registers_that_it_has_stopped_does_not_go_on(tmp_path: Path):
    assert run_ranks(saves_behind_a_break, 2, tmp_path, True) == [(16, "")] * 2
    assert run_ranks(saves_behind_a_break, 2, tmp_path, True) == [(16, "")] * 2


@pytest.mark.slow
@pytest.mark.usefixtures("warm_python")
def test_a_training_that_met_its_target_leaves_a_snapshot(tmp_path: Path):
    train = ["train", "mnist-cnn", "--epochs", "2", "--nproc-per-node", "1", "--global-batch", "256"]
    command = [sys.executable, "-m", "rankup", *train, "--target-accuracy", "0.05", "--name", "early"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    (run,) = (tmp_path / "runs" / "early").iterdir()
    assert [entry.path.name for entry in entries(run / "snapshots")] == ["step-6"]


def two_trainings(folder: Path) -> list[str]:
    """A signal comes in the last step of the first one, and no agreement of the ranks follows in it."""
    stop.AGREE_EVERY_S = 1000.0
    did = []
    try:
        for name in ("first", "second"):
            run = rankup.init(name=name, snapshots=rankup.Snapshots(every="off", directory=folder))
            data = rankup.ResidentData(torch.linspace(-1, 1, 8)[:, None])
            model, opt, feed = run.prepare(
                nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=4
            )
            for x in run.steps(feed, epochs=1):
                step(model, opt, x)
                did.append(f"{name} {run.global_step}")
                if did[-1] == "first 1":
                    os.kill(os.getpid(), signal.SIGTERM)
    except SystemExit:
        did.append("stopped")
    return did


def test_a_signal_in_the_last_steps_of_a_training_stops_the_next_one(tmp_path: Path):
    for did in run_ranks(two_trainings, 2, tmp_path):
        assert did == ["first 0", "first 1", "second 0", "stopped"]
