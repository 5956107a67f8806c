"""A resume in a later loop: the code between two loops runs again, and must not change the state twice."""

from __future__ import annotations

import copy
import io
import os
import subprocess
import sys
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import rankup
from programs.attempts import attempt
from programs.program import How, Program, Result, batches, perceptron, points, weights
from programs.trials import Trial, plain


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


class RateFinder(Program):
    """An LR finder trains some steps and puts weights and optimizer back; a loop of epochs follows."""

    tried = 3
    goal = 3

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = perceptron()

    def update(self, opt: Any, x: torch.Tensor, y: torch.Tensor) -> None:
        opt.zero_grad()
        F.mse_loss(self.model(x), y).backward()
        opt.step()

    def plain(self) -> Result:
        self.model.double()
        (x, y), opt = points(), adam(self.model.parameters())
        for epoch in range(self.epochs):
            for i in (
                batches(len(x), self.batch, epoch)
                if epoch
                else list(batches(len(x), self.batch, 0))[self.tried :]
            ):
                self.update(opt, x[i], y[i])
        return weights(self.model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(
            self.model, adam, rankup.ResidentData(*points()), global_batch=self.batch
        )
        begun = copy.deepcopy(model.state_dict()), copy.deepcopy(opt.state_dict())
        for x, y in run.steps(data, steps=self.goal):
            self.update(opt, x, y)
            if run.global_step == self.tried - 1:
                break
        model.load_state_dict(begun[0])
        opt.load_state_dict(begun[1])
        for epoch in run.epochs(self.epochs):
            for x, y in epoch:
                self.update(opt, x, y)
        return weights(model)


class RateFinderLeft(RateFinder):
    """The same; a break ends it long before its last step."""

    goal = 100


class StepPerLoop(RateFinder):
    """A loop for each epoch, and a registered schedule that is stepped after each."""

    def plain(self) -> Result:
        self.model.double()
        (x, y), opt = points(), adam(self.model.parameters())
        sched = torch.optim.lr_scheduler.StepLR(opt, 1, 0.5)
        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch):
                self.update(opt, x[i], y[i])
            sched.step()
        return weights(self.model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(
            self.model, adam, rankup.ResidentData(*points()), global_batch=self.batch
        )
        sched = torch.optim.lr_scheduler.StepLR(opt, 1, 0.5)
        run.register(sched=sched)
        for epoch in range(self.epochs):
            for x, y in run.steps(data, epochs=epoch + 1):
                self.update(opt, x, y)
            sched.step()
        return weights(model)


class SavePerLoop(RateFinder):
    """A rate that falls after each of several loops, and then a save by hand; another fall after it."""

    def plain(self) -> Result:
        self.model.double()
        (x, y), opt = points(), adam(self.model.parameters())
        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch):
                self.update(opt, x[i], y[i])
            opt.param_groups[0]["lr"] *= 0.7 * 0.5
        return weights(self.model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(
            self.model, adam, rankup.ResidentData(*points()), global_batch=self.batch
        )
        for epoch in range(self.epochs):
            for x, y in run.steps(data, epochs=epoch + 1):
                self.update(opt, x, y)
            opt.param_groups[0]["lr"] *= 0.7
            run.save()
            opt.param_groups[0]["lr"] *= 0.5
        return weights(model)


@pytest.mark.parametrize("every", ["off", pytest.param("1 steps", marks=pytest.mark.campaign), "3 steps"])
def test_a_save_between_two_loops_is_where_it_is_restored(every: str, tmp_path: Path):
    trial = Trial(SavePerLoop, "ddp", 2, tmp_path)
    trial.uninterrupted()
    trial.interrupted((0.7, 0.2), every, 3)
    assert not trial.problems, "\n".join(trial.problems)


@pytest.mark.parametrize(
    "program", [pytest.param(RateFinder, marks=pytest.mark.campaign), RateFinderLeft, StepPerLoop]
)
def test_the_code_between_two_loops_does_not_change_the_state_again(program: type[Program], tmp_path: Path):
    trial = Trial(program, "ddp", 2, tmp_path)
    trial.uninterrupted()
    assert plain(program)[0].keys() == trial.whole.results[0].keys()
    trial.interrupted((0.7, 0.2), "1 steps", 3)
    assert not trial.problems, "\n".join(trial.problems)


class BornAgain(RateFinder):
    """The model of the first loop is the teacher of the second one."""

    registered = False

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(
            self.model, adam, rankup.ResidentData(*points()), global_batch=self.batch
        )
        if self.registered:
            teacher = copy.deepcopy(model)
            run.register(teacher=teacher)
        with redirect_stderr(io.StringIO()) as said:
            for x, y in run.steps(data, epochs=1):
                self.update(opt, x, y)
            if self.registered:
                teacher.load_state_dict(model.state_dict())
            else:
                teacher = copy.deepcopy(model)
            for x, _ in run.steps(data, epochs=self.epochs):
                self.update(opt, x, teacher(x).detach())
        return {**weights(model), "said": said.getvalue()}


class BornAgainRegistered(BornAgain):
    registered = True


def test_a_copy_of_the_weights_that_is_made_between_two_loops_is_warned_of_at_a_resume(tmp_path: Path):
    assert attempt(BornAgain, "none", 1, tmp_path, "1 steps", 7).outcome == "killed"
    said = attempt(BornAgain, "none", 1, tmp_path, "1 steps").results[0]["said"]
    assert "Sequential teacher gets its weights there" in said


def test_a_registered_copy_is_restored_and_nothing_is_warned_of(tmp_path: Path):
    whole = attempt(BornAgainRegistered, "none", 1).results[0]
    assert attempt(BornAgainRegistered, "none", 1, tmp_path, "1 steps", 7).outcome == "killed"
    resumed = attempt(BornAgainRegistered, "none", 1, tmp_path, "1 steps").results[0]
    assert "gets its weights there" not in resumed["said"]
    assert all(torch.equal(whole[name], resumed[name]) for name in whole if name != "said")


#: A loop for each epoch, and early stopping; what it measures is the number of epochs, which grows with each.
PATIENCE = """
import os, signal, sys
import torch
import rankup

kill_at, patience = map(int, sys.argv[1:])
run = rankup.init(snapshots=rankup.Snapshots(every="1 steps"))
samples = rankup.ResidentData(torch.ones(8, 1))
model, opt, data = run.prepare(
    torch.nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.01), samples, global_batch=2
)
values = run.register(best=-float("inf"), bad=0)
for epoch in range(4):
    for x in run.steps(data, epochs=epoch + 1):
        loss = model(x).square().mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        if run.global_step + 1 == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
    measured = float(run.global_step // 4)
    if measured > values.best:
        values.best = measured
    else:
        values.bad += 1
    if values.bad > patience:
        break
print("steps", run.global_step)
"""


def trained(folder: Path, text: str, choice: int, *, kill_at: int = 0) -> subprocess.CompletedProcess[str]:
    script = folder / "train.py"
    script.write_text(text)
    return subprocess.run(
        [sys.executable, str(script), str(kill_at), str(choice)],
        env={**os.environ, "RANKUP_SNAPSHOT_DIR": str(folder / "snapshots")},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.usefixtures("warm_python")
def test_a_script_that_ends_before_the_loop_of_its_snapshot_is_warned_of(tmp_path: Path):
    assert trained(tmp_path, PATIENCE, 0, kill_at=11).returncode == -9
    resumed = trained(tmp_path, PATIENCE, 0)
    assert resumed.returncode == 0, resumed.stderr
    assert "the code between them runs again" in resumed.stdout
    assert "steps 16" not in resumed.stdout, "the case that the warning is for"
    assert resumed.stderr.count("the rest of this training is missing") == 1


@pytest.mark.usefixtures("warm_python")
def test_a_script_that_comes_to_the_loop_of_its_snapshot_is_not_warned_of(tmp_path: Path):
    assert trained(tmp_path, PATIENCE, 9, kill_at=11).returncode == -9
    resumed = trained(tmp_path, PATIENCE, 9)
    assert "steps 16" in resumed.stdout, resumed.stderr
    assert "missing" not in resumed.stderr


TAKEN_OFF = """
import os, pathlib, signal, sys
import torch
import rankup

kill_at, more = int(sys.argv[1]), int(sys.argv[2])
run = rankup.init(snapshots=rankup.Snapshots(every="2 steps", asynchronous=False))
samples = rankup.ResidentData(torch.ones(8, 1))
model, opt, data = run.prepare(
    torch.nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.01), samples, global_batch=2
)
mine = pathlib.Path(sys.argv[0]).with_name("epoch")  # what the script saved before it used rankup
start = int(mine.read_text()) if mine.exists() else 0
for epoch in run.epochs(4 - start + more * start):
    for x in epoch:
        model(x).square().mean().backward()
        opt.step()
        opt.zero_grad()
        if run.global_step + 1 == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
    mine.write_text(str(epoch.index + 1))
print("steps", run.global_step)
"""


@pytest.mark.parametrize(
    ("more", "kill_at", "steps", "says"),
    [
        (0, 11, 10, "is over epochs=2 now, and step-10 was taken in epoch 3: nothing is trained"),
        (
            0,
            7,
            12,
            "is over epochs=3 now, and was over epochs=4 when step-6 was saved: this training ends earlier",
        ),
        (1, 11, 16, ""),
        (2, 11, 24, ""),
    ],
)
@pytest.mark.usefixtures("warm_python")
def test_epochs_that_a_script_takes_off_itself_are_warned_of_at_a_resume(
    more: int, kill_at: int, steps: int, says: str, tmp_path: Path
):
    """``run.epochs(n - start)`` ends early, since it counts from the beginning. As many epochs, or more, are right."""
    assert trained(tmp_path, TAKEN_OFF, more, kill_at=kill_at).returncode == -9
    resumed = trained(tmp_path, TAKEN_OFF, more)
    assert f"steps {steps}" in resumed.stdout, resumed.stderr
    assert resumed.stderr.count(says or "is over") == bool(says), resumed.stderr
