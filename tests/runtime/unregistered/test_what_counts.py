"""Which values are noted: it depends on the value alone, and not on what holds it."""

from __future__ import annotations

import contextlib
import io
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import SubsetRandomSampler, TensorDataset

import rankup
from ranks import run_ranks
from rankup.errors import RankupError


def train(folder: Path, change: Any, forget: str = "", **prepared: Any) -> str:
    """What is said in two epochs, with ``change(run, held)`` in each step."""
    run = rankup.init(
        snapshots=rankup.Snapshots(every="2 steps", directory=folder, asynchronous=False), precision="fp64"
    )
    data = TensorDataset(torch.linspace(-1, 1, 12)[:, None])
    model, opt, feed = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=4, **prepared
    )
    held = Held()
    if forget:
        run.register(held=held)
        run.forget(forget)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            for (x,) in run.steps(feed, epochs=2):
                latest = change(run, held)
                model(x).square().mean().backward()
                opt.step()
                opt.zero_grad()
        del latest
    except RankupError as error:
        return f"{error.code}: {error.message} {error.hint}"
    return said.getvalue()


class Held:
    def __init__(self) -> None:
        self.best: float | None = None
        self.began = time.time()
        self.took = 0.0
        self.state: torch.Tensor | None = None


def set_best(run: rankup.Run, held: Held) -> None:
    held.best = run.global_step * 0.5


def read_clocks(run: rankup.Run, held: Held) -> None:
    held.began = time.perf_counter() if run.global_step % 2 else time.time()


def set_and_give(run: rankup.Run, held: Held) -> torch.Tensor:
    held.state = torch.ones(2) * run.global_step
    return held.state


def make_a_schedule(run: rankup.Run, held: Held) -> None:
    if run.global_step == 2:
        torch.optim.lr_scheduler.StepLR(run._context.optimizers[0], 5)  # it replaces the optimizer's step


def take_time(run: rankup.Run, held: Held) -> None:
    held.took = 0.1 * run.world.rank + run.global_step


def test_a_value_that_begins_as_none_is_noted_beside_a_sampler_without_a_generator(tmp_path: Path):
    (said,) = run_ranks(train_sampled, 1, tmp_path)
    assert "held.best" in said


def train_sampled(folder: Path) -> str:
    return train(folder, set_best, sampler=SubsetRandomSampler(range(12)))


def test_a_value_that_another_variable_has_too_is_noted(tmp_path: Path):
    (said,) = run_ranks(train, 1, tmp_path, set_and_give)
    assert "held.state" in said


def test_a_reading_of_a_clock_is_not_noted(tmp_path: Path):
    (said,) = run_ranks(train, 1, tmp_path, read_clocks)
    assert said == ""


def test_what_a_library_does_to_its_own_functions_is_not_noted(tmp_path: Path):
    (said,) = run_ranks(train, 1, tmp_path, make_a_schedule)
    assert said == ""


def test_an_attribute_that_differs_between_ranks_is_named_and_may_be_forgotten(tmp_path: Path):
    said = run_ranks(train, 2, tmp_path / "named", take_time, "nothing")
    assert all(each.startswith("ranks-differ: held.took (run.register) differs") for each in said), said
    assert all("run.forget('took') if it only prints" in each for each in said), said
    assert run_ranks(train, 2, tmp_path / "forgotten", take_time, "took") == ["", ""]


def train_folds(folder: Path, folds: int = 2) -> str:
    """Trainings in one loop: ``loss`` is what the one before has left; ``best`` was there before all."""
    said, best = io.StringIO(), 0.0
    for fold in range(folds):
        run = rankup.init(name=f"fold-{fold}", snapshots=rankup.Snapshots(every="2 steps", directory=folder))
        data = TensorDataset(torch.linspace(-1, 1, 12)[:, None])
        model, opt, feed = run.prepare(
            nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=4
        )
        with contextlib.redirect_stderr(said):
            for (x,) in run.steps(feed, epochs=2):
                loss = model(x).square().mean()
                loss.backward()
                opt.step()
                opt.zero_grad()
                best += fold
    return said.getvalue()


def folds_in_a_comprehension(folder: Path) -> list[str]:
    return [
        train_folds(folder / str(number)) for number in range(2)
    ]  # in Python 3.11 a frame with a variable ".0"


def test_what_one_fold_leaves_is_no_state_of_the_next_one(tmp_path: Path):
    ((said, _),) = run_ranks(folds_in_a_comprehension, 1, tmp_path)
    assert said.count("state-lost: best") == 1, said
    assert "loss" not in said


def test_nor_is_it_if_that_fold_was_done_in_an_earlier_attempt(tmp_path: Path):
    assert run_ranks(train_folds, 1, tmp_path, 1) == [""]
    (said,) = run_ranks(train_folds, 1, tmp_path)  # the first fold gives its last step again
    assert "state-lost: best" in said
    assert "loss" not in said


def two_folds_of_two_stages(folder: str) -> str:
    """The loss of a fold is made behind its second stage, and is still there in both stages of the next fold."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        for fold in range(2):
            run = rankup.init(
                name=f"fold-{fold}",
                snapshots=rankup.Snapshots(every="2 steps", directory=Path(folder), asynchronous=False),
            )
            data = TensorDataset(torch.linspace(-1, 1, 12)[:, None] + fold)
            net = nn.Linear(1, 1)
            for stage in range(2):
                model, opt, feed = run.prepare(
                    net, lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=4
                )
                for epoch in run.epochs(2, feed):
                    for (x,) in epoch:
                        model(x).square().mean().backward()
                        opt.step()
                        opt.zero_grad()
                    if stage == 1:
                        loss = model(x).square().mean().item()
    return said.getvalue() + f"{loss > 0}"


def test_what_a_fold_left_is_no_state_of_any_stage_of_the_next_one(tmp_path: Path):
    (said,) = run_ranks(two_folds_of_two_stages, 1, str(tmp_path))
    assert said == "True"


def two_loops(folder: Path, killed: int | None) -> Any:
    """Loops of one training: ``loss`` is what the first one has left, ``total`` begins anew before the second."""
    run = rankup.init(snapshots=rankup.Snapshots(every="2 steps", directory=folder, asynchronous=False))
    data = TensorDataset(torch.linspace(-1, 1, 12)[:, None])
    model, opt, feed = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=4
    )
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            for epoch in run.epochs(2, feed):
                total = 0.0
                for (x,) in epoch:
                    loss = model(x).square().mean()
                    run.backward(loss)
                    run.step(opt)
                    total += loss.item()
            total = 0.0
            _, _, more = run.prepare(model, None, data, global_batch=4)
            for epoch in run.epochs(3, more):
                for (x,) in epoch:
                    if run.global_step == killed:
                        return said.getvalue()
                    loss = model(x).square().mean()
                    run.backward(loss)
                    run.step(opt)
                    total += loss.item()
    except RankupError as error:
        return f"{error.code}: {error.message}"
    return said.getvalue()


def test_what_the_first_loop_of_a_training_has_left_is_no_state_of_the_second(tmp_path: Path):
    (said,) = run_ranks(two_loops, 1, tmp_path, 12)
    assert "total. Before the loop" in said and "loss" not in said.partition("Before the loop")[0]
    (said,) = run_ranks(two_loops, 1, tmp_path, None)
    assert said.startswith("state-lost: ") and "total: " in said and "loss" not in said, said


def loop_with_a_local_name(folder: Path) -> str:
    run = rankup.init(snapshots=rankup.Snapshots(every="2 steps", directory=folder, asynchronous=False))
    data = TensorDataset(torch.linspace(-1, 1, 12)[:, None])
    model, opt, feed = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=4
    )

    def fit() -> None:
        for (x,) in run.steps(feed, epochs=2):
            a = model(x).square().mean()
            run.backward(a)
            run.step(opt)

    a = Held()  # another variable than that of the loop
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        fit()
    return said.getvalue() if a else ""


def test_a_name_that_the_loop_gives_a_variable_of_its_own_is_not_the_outer_one(tmp_path: Path):
    assert run_ranks(loop_with_a_local_name, 1, tmp_path) == [""]
