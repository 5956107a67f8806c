"""A resume in a later loop: the code between two loops runs again, and must not change the state twice."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import rankup
from programs.program import How, Program, Result, batches, perceptron, points, weights
from programs.trials import Trial, plain


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


class RateFinder(Program):
    """An LR finder trains some steps on data of its own, and puts weights and optimizer back; then epochs follow."""

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
            for i in batches(len(x), self.batch, epoch):
                self.update(opt, x[i], y[i])
        return weights(self.model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        samples = rankup.ResidentData(*points())
        model, opt, probe = run.prepare(self.model, adam, samples, global_batch=self.batch)
        begun = copy.deepcopy(model.state_dict()), copy.deepcopy(opt.state_dict())
        for number, (x, y) in enumerate(run.steps(probe, steps=self.goal), start=1):
            self.update(opt, x, y)
            if number == self.tried:
                break
        model.load_state_dict(begun[0])
        opt.load_state_dict(begun[1])
        _, _, data = run.prepare(model, None, samples, global_batch=self.batch)
        for epoch in run.epochs(self.epochs, data):
            for x, y in epoch:
                self.update(opt, x, y)
        return weights(model)


class RateFinderLeft(RateFinder):
    """The same; a break ends it long before its last step."""

    goal = 100


class SchedulePerLoop(RateFinder):
    """A stage for each rate: the code between the loops changes the optimizer, and saves in between."""

    def plain(self) -> Result:
        self.model.double()
        (x, y), opt = points(), adam(self.model.parameters())
        for _ in range(self.epochs):
            for i in batches(len(x), self.batch, 0):
                self.update(opt, x[i], y[i])
            opt.param_groups[0]["lr"] *= 0.7 * 0.5
        return weights(self.model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        samples = rankup.ResidentData(*points())
        model, opt, data = run.prepare(self.model, adam, samples, global_batch=self.batch)
        for _ in range(self.epochs):
            for x, y in run.steps(data, epochs=1):
                self.update(opt, x, y)
            opt.param_groups[0]["lr"] *= 0.7
            run.save()
            opt.param_groups[0]["lr"] *= 0.5
            _, _, data = run.prepare(model, None, samples, global_batch=self.batch)
        return weights(model)


class BornAgain(RateFinder):
    """The model of the first loop is the teacher of the second one."""

    def plain(self) -> Result:
        self.model.double()
        (x, y), opt = points(), adam(self.model.parameters())
        for i in batches(len(x), self.batch, 0):
            self.update(opt, x[i], y[i])
        teacher = copy.deepcopy(self.model)
        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch):
                self.update(opt, x[i], teacher(x[i]).detach())
        return weights(self.model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        samples = rankup.ResidentData(*points())
        model, opt, data = run.prepare(self.model, adam, samples, global_batch=self.batch)
        for x, y in run.steps(data, epochs=1):
            self.update(opt, x, y)
        teacher = copy.deepcopy(model)
        _, _, data = run.prepare(model, None, samples, global_batch=self.batch)
        for x, _ in run.steps(data, epochs=self.epochs):
            self.update(opt, x, teacher(x).detach())
        return weights(model)


PROGRAMS = [RateFinder, RateFinderLeft, SchedulePerLoop, BornAgain]


@pytest.mark.slow
@pytest.mark.parametrize("every", ["1 steps", pytest.param("3 steps", marks=pytest.mark.campaign)])
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(
            each,
            id=each.name(),
            marks=[] if each is SchedulePerLoop else pytest.mark.campaign,
        )
        for each in PROGRAMS
    ],
)
def test_the_code_between_two_loops_meets_the_state_that_it_met_the_first_time(
    program: type[Program], every: str, tmp_path: Path
):
    trial = Trial(program, "ddp", 2, tmp_path)
    trial.uninterrupted()
    assert plain(program)[0].keys() == trial.whole.results[0].keys()
    trial.interrupted((0.7, 0.2), every, 3)
    assert not trial.problems, "\n".join(trial.problems)


TAKEN_OFF = """
import os, pathlib, signal, sys
import torch
import rankup

kill_at, more = int(sys.argv[1]), int(sys.argv[2])
run = rankup.init(snapshots=rankup.Snapshots(every="2 steps", asynchronous=False))
run.forget("start")
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


def trained(folder: Path, more: int, *, kill_at: int = 0) -> subprocess.CompletedProcess[str]:
    script = folder / "train.py"
    script.write_text(TAKEN_OFF)
    return subprocess.run(
        [sys.executable, str(script), str(kill_at), str(more)],
        env={**os.environ, "RANKUP_SNAPSHOT_DIR": str(folder / "snapshots")},
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.parametrize(
    ("more", "kill_at", "steps", "says"),
    [
        (0, 11, 10, "is over epochs=2, and step-10 was taken after them: nothing is trained"),
        (0, 7, 12, "and was over epochs=4 when step-6 was saved: this training ends earlier"),
        (1, 11, 16, ""),
        (2, 11, 24, ""),
    ],
)
@pytest.mark.usefixtures("warm_python")
def test_epochs_that_a_script_takes_off_itself_are_warned_of_at_a_resume(
    more: int, kill_at: int, steps: int, says: str, tmp_path: Path
):
    """``run.epochs(n - start)`` ends early, since it counts from the beginning. As many epochs, or more, are right."""
    assert trained(tmp_path, more, kill_at=kill_at).returncode == -9
    resumed = trained(tmp_path, more)
    assert f"steps {steps}" in resumed.stdout, resumed.stderr
    assert resumed.stderr.count(says or "is over") == bool(says), resumed.stderr
