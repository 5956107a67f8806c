"""Variables that a loop carries from pass to pass and that no snapshot has: what a resume would lose, and has lost."""

from __future__ import annotations

import contextlib
import copy
import gc
import io
import math
import sys
import time
import weakref
from pathlib import Path
from typing import Any

import torch
from torch import nn

import rankup
from ranks import run_ranks
from rankup.runtime.tracing.script_variables import variables_of


class Stopper:
    def __init__(self) -> None:
        self.best, self.bad, self.patience = math.inf, 0, 3

    def __call__(self, loss: float) -> bool:
        if loss < self.best:
            self.best = loss
        else:
            self.bad += 1
        return self.bad >= self.patience


class Average:
    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.sum = 0.0

    def update(self, value: float) -> None:
        self.sum += value


class Stopped(Exception):
    """In place of a kill."""


def begin(directory: str) -> tuple[rankup.Run, Any, Any]:
    run = rankup.init(snapshots=rankup.Snapshots(directory=directory, every="1 steps"))
    data = rankup.ResidentData(torch.arange(16.0).reshape(8, 2))
    model, opt, _ = run.prepare(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.001), data, global_batch=2)
    return run, model, opt


def step(run: rankup.Run, model: Any, opt: Any, batch: torch.Tensor, stop: int) -> float:
    loss = model(batch).square().mean()
    opt.zero_grad()
    run.backward(loss)
    run.step(opt)
    if run.global_step == stop:
        raise Stopped
    return loss.item()


def said(train: Any, directory: str, stop: int = -1) -> str:
    """What rank 0 says on stderr."""
    stream = io.StringIO()
    with contextlib.redirect_stderr(stream), contextlib.suppress(Stopped):
        train(directory, stop)
    return stream.getvalue()


counted = 0


def count() -> None:
    global counted
    counted += 1


def careless(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    best, best_weights, losses, stopper, average = math.inf, None, [], Stopper(), Average()
    begun, last, limit = time.time(), 0.0, 100
    for epoch in run.epochs(3):
        total = 0.0
        average.reset()
        for batch in epoch:
            loss = step(run, model, opt, batch, stop)
            total, last = total + loss, loss
            average.update(loss)
            count()
        losses.append(total)
        if total < min(best, limit):
            best, best_weights = total, copy.deepcopy(model.state_dict())
        stopper(total)
        run.print(begun - time.time(), last, average.sum, end="")
        begun = time.time()
    assert best_weights is not None


def test_the_first_epoch_ends_with_a_warning_of_what_a_resume_would_lose(tmp_path: Path):
    (first,) = run_ranks(said, 1, careless, str(tmp_path))
    steps, epochs = first.splitlines()
    assert "carries counted from one pass to the next, and no snapshot has it" in steps
    assert "carries best, best_weights, losses and stopper.best from one pass to the next" in epochs
    assert "values = run.register(best=…)" in epochs and "test_carried_variables.py:" in epochs


def attempts(train: Any, directory: Path, stops: tuple[int, ...], ranks: int = 1) -> list[list[str]]:
    """What each rank says in each attempt."""
    return [run_ranks(said, ranks, train, str(directory), stop) for stop in stops]


def test_a_resume_says_what_it_has_lost_and_what_the_values_were(tmp_path: Path):
    _, (second,), (third,) = attempts(careless, tmp_path, (6, 9, -1))
    lost, lacking = (line for line in second.splitlines() if "resume" in line and "now)" in line)
    assert "this resume has lost them: best (" in lost and "inf now)" in lost
    assert "losses (list of 1 when it was saved, list of 0 now)" in lost and "counted (5 when it was" in lost
    assert (
        "this epoch is resumed after its step 1" in lacking
        and "total (" in lacking
        and "average.sum (" in lacking
    )
    assert "last (" not in lost and "begun (" not in lost + lacking
    assert "best_weights (OrderedDict of 2 when it was saved, None now)" in lost
    # Between two epochs there is no sum of an epoch to lose.
    assert "this resume has lost them" in third and "lack these steps" not in third


def careful(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    losses: list[float] = []
    values = run.register(best=math.inf, losses=losses)
    for epoch in run.epochs(3):
        for batch in epoch:
            loss = step(run, model, opt, batch, stop)
            run.meter.add(loss=loss)
        total = run.meter.means()["loss"]
        losses.append(total)
        values.best = min(values.best, total)


def positions(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    for epoch in run.epochs(3):
        number = epoch.done
        for batch in epoch:
            step(run, model, opt, batch, stop)
            number += 1
        print(number, file=sys.stderr)


def stored_by_itself(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    file = Path(directory).with_suffix(".best")
    best = float(file.read_text()) if file.exists() else math.inf
    for epoch in run.epochs(3):
        for batch in epoch:
            best = min(best, step(run, model, opt, batch, stop))
            file.write_text(str(best))


def test_what_is_registered_or_stored_by_the_script_itself_is_not_lost(tmp_path: Path):
    assert attempts(careful, tmp_path / "careful", (6, 9, -1)) == [[""], [""], [""]]
    assert attempts(positions, tmp_path / "positions", (6, -1)) == [["4\n"], ["4\n4\n"]]
    _, (second,) = attempts(stored_by_itself, tmp_path / "own", (6, -1))
    assert "lost" not in second


def flat(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    running = 0.0
    for batch in run.steps(run._context.feeds[-1], steps=8):
        running = 0.9 * running + 0.1 * step(run, model, opt, batch, stop)


def test_the_flat_loop_and_two_ranks_of_which_the_first_one_speaks(tmp_path: Path):
    first, second = attempts(flat, tmp_path, (3, -1), ranks=2)
    assert "carries running from one pass" in first[0] and first[0].count("\n") == 1
    assert "running (" in second[0] and "0.0 now)" in second[0]
    assert (first[1], second[1]) == ("", "")


class Trainer:
    def __init__(self, directory: str, stop: int) -> None:
        self.run, self.model, self.opt = begin(directory)
        self.stop, self.best, self.shown, self.total = stop, math.inf, 0.0, 0.0

    def fit(self) -> None:
        for epoch in self.run.epochs(2):
            self.total = 0.0
            for batch in epoch:
                self.learn(batch)
            self.judge()

    def learn(self, batch: torch.Tensor) -> None:
        loss = step(self.run, self.model, self.opt, batch, self.stop)
        self.shown = loss
        self.total += loss

    def judge(self) -> None:
        if self.total < self.best:
            self.best = self.total


def train_by_class(directory: str, stop: int) -> None:
    Trainer(directory, stop).fit()


def test_attributes_of_a_class_that_trains(tmp_path: Path):
    (first,), (second,) = attempts(train_by_class, tmp_path, (6, -1))
    (line,) = first.splitlines()
    assert "carries self.best from one pass" in line
    assert "self.best (" in second and "self.total (" in second and "self.shown" not in second


def test_a_frame_does_not_keep_the_tensors_of_a_step():
    def body() -> weakref.ref[torch.Tensor]:
        batch = torch.ones(3)
        assert variables_of(sys._getframe())["batch"] is batch
        gone = weakref.ref(batch)
        batch = torch.zeros(3)
        assert gone() is None and batch is not None
        return gone

    assert body()() is None
    gc.collect()


def test_the_variables_that_a_script_has_asked_for_stay():
    def body() -> dict[str, Any]:
        rate = 0.1
        mine = locals()
        variables_of(sys._getframe())
        assert rate == mine["rate"]
        return mine

    assert body()["rate"] == 0.1


def replacing(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    average, hidden, history = {"weight": torch.zeros(1, 2)}, torch.zeros(1), [0.0]
    run.register(average=average, hidden=hidden, history=history)
    for epoch in run.epochs(2):
        for batch in epoch:
            loss = step(run, model, opt, batch, stop)
            average = {name: 0.9 * value + loss for name, value in average.items()}
            hidden = hidden + loss
        history = [*history, loss]


def changing_in_place(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    average, hidden, history = {"weight": torch.zeros(1, 2)}, torch.zeros(1), [0.0]
    run.register(average=average, hidden=hidden, history=history)
    for epoch in run.epochs(2):
        for batch in epoch:
            loss = step(run, model, opt, batch, stop)
            average.update({name: 0.9 * value + loss for name, value in average.items()})
            hidden += loss
        history.append(loss)


def test_a_registered_object_in_whose_place_the_loop_puts_another_one_is_warned_of(tmp_path: Path):
    (text,) = run_ranks(said, 1, replacing, str(tmp_path))
    for name in ("average", "hidden", "history"):
        assert text.count(f"puts another object into {name}, which was registered") == 1


def test_a_registered_object_that_is_changed_in_place_is_not_warned_of(tmp_path: Path):
    assert run_ranks(said, 1, changing_in_place, str(tmp_path)) == [""]
