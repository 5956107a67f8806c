"""A resume after a loop: what the loop set, and the code after it reads, has its value."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import rankup
from ranks import run_ranks
from rankup.runtime.checkpointing import stop
from rankup.runtime.checkpointing.loop_variables import needed_after


class Rows(torch.utils.data.IterableDataset[Any]):
    def __iter__(self) -> Any:
        yield from torch.linspace(-1, 1, 32, dtype=torch.float64)[:, None]


def begin(folder: Path, data: Any, every: str = "off") -> tuple[rankup.Run, Any, Any]:
    stop.AGREE_EVERY_S = 0.0
    run = rankup.init(snapshots=rankup.Snapshots(every=every, directory=folder), precision="fp64")
    model, opt, _ = run.prepare(nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=8)
    return run, model, opt


def resident() -> Any:
    return rankup.ResidentData(torch.linspace(-1, 1, 32)[:, None])


def step(run: rankup.Run, model: Any, opt: Any, x: torch.Tensor) -> torch.Tensor:
    loss = model(x).square().mean()
    run.backward(loss)
    run.step(opt)
    return loss.detach()


def ask(folder: Path) -> None:
    """A request to stop, once per rank."""
    marker = folder / f"asked-{os.getenv('RANK', '0')}"
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGTERM)


def trains(folder: Path, where: str, stream: bool) -> tuple[list[Any], str]:
    """What the code after the loops saw in this attempt, and what rank 0 says. ``where``: of the request."""
    said, found = io.StringIO(), []
    with contextlib.suppress(SystemExit), contextlib.redirect_stderr(said):
        run, model, opt = begin(folder, Rows() if stream else resident())
        for epoch in run.epochs(3):
            total, steps = 0.0, 0
            for batch in epoch:
                loss = step(run, model, opt, batch)
                total, steps, each = total + loss.item(), steps + 1, np.float64(loss.item())
                if where == "last step" and epoch.index == 1 and steps == 4:
                    ask(folder)
            for _ in run.batches(resident(), global_batch=8):
                if where == "evaluation" and epoch.index == 1:
                    ask(folder)
            found.append((epoch.index, total, steps, loss.item(), float(each)))
        found.append(loss.item())
    return found, said.getvalue()


@pytest.mark.parametrize("where", ["last step", "evaluation"])
@pytest.mark.parametrize(("ranks", "stream"), [(1, False), (3, False), (1, True)])
def test_the_code_after_the_inner_loop_has_its_variables(
    tmp_path: Path, where: str, ranks: int, stream: bool
):
    whole = run_ranks(trains, ranks, tmp_path / "whole", "", stream)
    first = run_ranks(trains, ranks, tmp_path / "parts", where, stream)
    later = run_ranks(trains, ranks, tmp_path / "parts", where, stream)
    assert all(len(found) < 4 for found, _ in first)
    together = [a[: 4 - len(b)] + b for (a, _), (b, _) in zip(first, later, strict=True)]
    assert together == [found for found, _ in whole]
    assert stream or "lack these steps" not in later[0][1]


def other_ranks(folder: Path) -> tuple[bool, float]:
    run, model, opt = begin(folder, resident())
    total = 0.0
    with contextlib.suppress(SystemExit):
        for epoch in run.epochs(2):
            total = 0.0
            for batch in epoch:
                loss = step(run, model, opt, batch)
                total += 1
            if epoch.index == 0:
                for _ in run.batches(resident(), global_batch=8):
                    ask(folder)
                return loss.item() > 0, total
    return False, total


def test_on_another_number_of_ranks_a_sum_of_another_rank_is_not_taken_over(tmp_path: Path):
    run_ranks(other_ranks, 1, tmp_path)
    (tmp_path / "asked-1").touch()
    assert run_ranks(other_ranks, 2, tmp_path) == [(True, 0.0)] * 2


class Killed(Exception):
    """In place of a kill."""


def after_the_last_loop(folder: Path, kill: bool) -> tuple[float, Any]:
    run, model, opt = begin(folder, resident(), every="1 epochs")
    for epoch in run.epochs(1):
        for batch in epoch:
            first = step(run, model, opt, batch)
    seen = first.item()
    for epoch in run.epochs(3):
        for batch in epoch:
            last = step(run, model, opt, batch)
    run.save()
    if kill:
        return seen, None
    return seen, last.item()


def test_loops_that_have_ended_leave_their_variables_to_the_code_after_them(tmp_path: Path):
    run_ranks(after_the_last_loop, 1, tmp_path / "killed", True)
    whole = run_ranks(after_the_last_loop, 1, tmp_path / "whole", False)
    assert run_ranks(after_the_last_loop, 1, tmp_path / "killed", False) == whole


def after_all_epochs(folder: Path, kill: bool) -> tuple[int, int, float]:
    run, model, opt = begin(folder, resident(), every="1 epochs")
    best = 0
    for epoch in run.epochs(3):
        for batch in epoch:
            loss = step(run, model, opt, batch)
        if epoch.index == 1:
            best = epoch.index
    if kill:
        raise Killed
    return epoch.index + 1, best, loss.item()


def killed_after_all_epochs(folder: Path) -> None:
    with contextlib.suppress(Killed):
        after_all_epochs(folder, True)


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_code_after_the_loop_over_epochs_has_the_last_epoch(tmp_path: Path, ranks: int):
    run_ranks(killed_after_all_epochs, ranks, tmp_path / "killed")
    resumed = run_ranks(after_all_epochs, ranks, tmp_path / "killed", False)
    assert resumed == run_ranks(after_all_epochs, ranks, tmp_path / "whole", False)
    assert resumed[0][:2] == (3, 1)


def held_by_an_object(folder: Path) -> str:
    """What is printed."""
    run, model, opt = begin(folder, resident())
    said = io.StringIO()
    with contextlib.suppress(SystemExit, UnboundLocalError), contextlib.redirect_stdout(said):
        for epoch in run.epochs(2):
            for batch in epoch:
                last = nn.Linear(1, 1)
                step(run, model, opt, batch)
            for _ in run.batches(resident(), global_batch=8):
                ask(folder)
            assert last is not None
    return said.getvalue()


def test_a_variable_that_no_snapshot_can_hold_is_named(tmp_path: Path):
    run_ranks(held_by_an_object, 1, tmp_path)
    (said,) = run_ranks(held_by_an_object, 1, tmp_path)
    assert said.count("the snapshot cannot hold the value of last:") == 1


def begun_before_the_loop(folder: Path) -> str:
    """What is printed."""
    run, model, opt = begin(folder, resident())
    said = io.StringIO()
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(said):
        for epoch in run.epochs(2):
            last: Any = None
            for batch in epoch:
                last = (batch, step(run, model, opt, batch))
            for _ in run.batches(resident(), global_batch=8):
                ask(folder)
            print("last is", last)
    return said.getvalue()


def test_a_variable_that_has_its_value_from_before_the_loop_is_named(tmp_path: Path):
    run_ranks(begun_before_the_loop, 1, tmp_path)
    (said,) = run_ranks(begun_before_the_loop, 1, tmp_path)
    assert said.count("the snapshot cannot hold the value of last:") == 1


@pytest.mark.parametrize(
    ("code", "line", "names"),
    [
        ("for x in data:\n    loss = f(x)\nprint(loss)", 2, {"loss"}),
        ("for x in data:\n    loss = f(x)\nloss = 0\nprint(loss)", 2, set()),
        ("for e in epochs:\n    for x in data:\n        y = f(x)\n    g(y)\nprint(x, e)", 3, {"x", "y"}),
        ("for e in epochs:\n    for x in data:\n        y = f(x)\n    g(y)\nprint(x, e)", 1, {"x", "e"}),
        ("for x in data:\n    if f(x):\n        found = x\nprint(found.best)", 1, {"found"}),
        ("for x in data:\n    n += 1\nelse:\n    f(n)", 2, {"n"}),
        ("with a:\n    for i, x in enumerate(data):\n        pass\nprint(i)", 2, {"i"}),
        ("for x in data:\n    n += 1\nfor x in other:\n    f(x)\nprint(n)", 1, {"n"}),
        ("print(1)", 1, set()),
    ],
)
def test_the_variables_that_a_loop_sets_and_that_are_read_after_it(code: str, line: int, names: set[str]):
    assert needed_after(textwrap.dedent(code), line)[1] == names


def adds_to_a_registered_tensor(folder: Path) -> tuple[list[float], bool]:
    run, model, opt = begin(folder, resident())
    confusion = torch.zeros(2)
    run.register(confusion=confusion)
    first, found = confusion, []
    with contextlib.suppress(SystemExit):
        for epoch in run.epochs(3):
            for batch in epoch:
                step(run, model, opt, batch)
                confusion += 1
            for _ in run.batches(resident(), global_batch=8):
                ask(folder)
            found.append(confusion[0].item())
    return found, first is confusion


def test_a_registered_object_stays_the_one_that_is_registered(tmp_path: Path):
    run_ranks(adds_to_a_registered_tensor, 1, tmp_path)
    found, same = run_ranks(adds_to_a_registered_tensor, 1, tmp_path)[0]
    assert same and found == [found[0], 2 * found[0], 3 * found[0]]
