"""State that is easily overlooked: of an optimizer inside another one, of a data set's own generator, a module's mode.

Each program is killed and resumed, as those of the catalogue are; the others say that a resume would lose something.
"""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import Optimizer
from torch.utils.data import Dataset

import rankup
from programs.attempts import attempt
from programs.program import OWN, How, Program, Result, batches, expect, perceptron, points, weights
from programs.trials import Trial, plain
from rankup.errors import RankupError


class Lookahead(Optimizer):
    """As several packages have it: the inner optimizer's groups, and a state of its own."""

    def __init__(self, optimizer: Optimizer, every: int = 3) -> None:
        super().__init__(optimizer.param_groups, {})
        self.optimizer, self.every = optimizer, every
        self.param_groups = optimizer.param_groups
        self.state = defaultdict(dict)
        for group in self.param_groups:
            group["counter"] = 0

    def step(self, closure: Any = None) -> Any:
        self.optimizer.step(closure)
        for group in self.param_groups:
            group["counter"] = (group["counter"] + 1) % self.every
            for fast in group["params"] if group["counter"] == 0 else ():
                slow = self.state[fast].setdefault("slow", torch.zeros_like(fast))
                fast.data.copy_(slow.add_(fast.data - slow, alpha=0.5))


class Sam(Optimizer):
    """SAM as published: two calls per step, neither of which is ``step``, and ``p.data`` replaced."""

    def __init__(self, parameters: Any, base: type[Optimizer], **options: Any) -> None:
        super().__init__(parameters, {"rho": 0.05, **options})
        self.base_optimizer = base(self.param_groups, **options)  # type: ignore[call-arg]
        self.param_groups = self.base_optimizer.param_groups

    def parameters(self) -> list[torch.Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def step(self, closure: Any = None) -> None:
        raise NotImplementedError

    @torch.no_grad()
    def first_step(self) -> None:
        norm = torch.stack([p.grad.norm() for p in self.parameters() if p.grad is not None]).norm()
        for p in self.parameters():
            assert p.grad is not None
            self.state[p]["old_p"] = p.data.clone()
            p.add_(p.grad * 0.05 / norm)
        self.zero_grad()

    @torch.no_grad()
    def second_step(self) -> None:
        for p in self.parameters():
            p.data = self.state[p]["old_p"]
        self.base_optimizer.step()
        self.zero_grad()


class Rows(Dataset[Any]):
    def __init__(self, *columns: torch.Tensor) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, number: int) -> Any:
        return tuple(column[number] for column in self.columns)


class Fitted(Program):
    """A regression in plain steps."""

    abstract = True

    def build(self) -> nn.Module:
        return perceptron()

    def optimizer(self, parameters: Any) -> Optimizer:
        return torch.optim.SGD(parameters, lr=0.05)

    def update(self, model: nn.Module, opt: Any, x: torch.Tensor, y: torch.Tensor) -> None:
        opt.zero_grad()
        F.mse_loss(model(x), y).backward()
        opt.step()

    def after(self, model: Any, epoch: int) -> None:
        """After the inner loop."""

    def data(self) -> Dataset[Any]:
        return Rows(*points())

    def plain(self) -> Result:
        torch.manual_seed(0)
        (x, y), model = points(), self.build().double()
        opt = self.optimizer(model.parameters())
        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch):
                self.update(model, opt, x[i], y[i])
            self.after(model, epoch)
        return weights(model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, _ = run.prepare(self.build(), self.optimizer, self.data(), global_batch=self.batch)
        for epoch in run.epochs(self.epochs):
            for x, y in epoch:
                self.update(model, opt, x, y)
            self.after(model, epoch.index)
        return weights(model)


class LookaheadClass(Fitted):
    """Lookahead as a class around Adam."""

    def optimizer(self, parameters: Any) -> Optimizer:
        return Lookahead(torch.optim.Adam(parameters, lr=0.05))


class SamClass(Fitted):
    """SAM as a class around SGD with momentum."""

    def optimizer(self, parameters: Any) -> Optimizer:
        return Sam(parameters, torch.optim.SGD, lr=0.05, momentum=0.9)

    def update(self, model: nn.Module, opt: Any, x: torch.Tensor, y: torch.Tensor) -> None:
        F.mse_loss(model(x), y).backward()
        opt.first_step()
        F.mse_loss(model(x), y).backward()
        opt.second_step()


class OnePerLayer(Optimizer):
    """A list of optimizers, one for each parameter."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})
        self.optimizers = [torch.optim.Adam([p], lr=0.05) for p in self.param_groups[0]["params"]]

    def step(self, closure: Any = None) -> None:
        for each in self.optimizers:
            each.step()


class ByDimension(Optimizer):
    """A dict of optimizers, one for matrices and one for vectors, whose groups are its own."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})
        every = self.param_groups[0]["params"]
        self.parts = {
            "matrices": torch.optim.SGD([p for p in every if p.ndim > 1], lr=0.05, momentum=0.9),
            "vectors": torch.optim.Adam([p for p in every if p.ndim == 1], lr=0.05),
        }
        self.param_groups = [group for each in self.parts.values() for group in each.param_groups]

    def step(self, closure: Any = None) -> None:
        for each in self.parts.values():
            each.step()


class ListedOptimizers(Fitted):
    """An optimizer that holds others in a list."""

    def optimizer(self, parameters: Any) -> Optimizer:
        return OnePerLayer(parameters)


class NamedOptimizers(Fitted):
    """An optimizer that holds others in a dict."""

    def optimizer(self, parameters: Any) -> Optimizer:
        return ByDimension(parameters)


class FrozenStatistics(Fitted):
    """BatchNorm and dropout are set to eval() after the first epoch."""

    expected: ClassVar = expect(none=OWN, ddp=OWN)
    batch = 5
    moves = False

    def build(self) -> nn.Module:
        layers = (nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Tanh(), nn.Linear(8, 1))
        return nn.Sequential(*layers)

    def after(self, model: Any, epoch: int) -> None:
        model[1].eval()
        model[2].eval()


class Shaken(Rows):
    """Noise from generators of its own, also from one in a transform."""

    def __init__(self, *columns: torch.Tensor) -> None:
        super().__init__(*columns)
        self.rng = np.random.default_rng(0)
        self.legacy = np.random.RandomState(0)
        self.torch = torch.Generator()
        self.transforms = [Shift()]

    def __getitem__(self, number: int) -> Any:
        x, y = super().__getitem__(number)
        noise = self.rng.normal() + self.legacy.normal() + torch.rand(1, generator=self.torch).item()
        return self.transforms[0](x) + noise, y


class Shift:
    def __init__(self) -> None:
        self.random = random.Random(0)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.random.random()


class OwnGenerators(Fitted):
    """A data set with generators of its own: the same numbers on any number of ranks, and after a resume."""

    def data(self) -> Dataset[Any]:
        return Shaken(*points())

    def plain(self) -> Result:
        return attempt(type(self), "none", 1).results[0]  # keyed on samples, which no plain loop does


class SeededEpochs(FrozenStatistics):
    """torch.manual_seed before the inner loop of each epoch, with dropout."""

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, _ = run.prepare(self.build(), self.optimizer, self.data(), global_batch=self.batch)
        for epoch in run.epochs(self.epochs):
            torch.manual_seed(epoch.index)
            for x, y in epoch:
                self.update(model, opt, x, y)
        return weights(model)


class Rollouts(Fitted):
    """Targets are made anew before each inner loop, by the model of that time; registered."""

    once = False
    expected: ClassVar = expect()

    def renew(self, model: Any, x: torch.Tensor, y: torch.Tensor) -> None:
        with torch.no_grad():
            y.copy_(model(x).sin() + x.sum(1, keepdim=True))

    def plain(self) -> Result:
        torch.manual_seed(0)
        (x, y), model = points(), self.build().double()
        opt = self.optimizer(model.parameters())
        for epoch in range(self.epochs):
            self.renew(model, x, y)
            for i in batches(len(x), self.batch, epoch):
                self.update(model, opt, x[i], y[i])
        return weights(model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        x, y = points()
        model, opt, _ = run.prepare(self.build(), self.optimizer, Rows(x, y), global_batch=self.batch)
        run.register(y=y)
        for epoch in run.epochs(self.epochs):
            if epoch.done == 0 or not self.once:
                self.renew(model, x, y)
            for a, b in epoch:
                self.update(model, opt, a, b)
        return weights(model)


class RolloutsOnce(Rollouts):
    """The same, only at the beginning of an epoch."""

    once = True


class Cooling(nn.Module):
    """Every kind of plain attribute that a forward may change."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.scale = nn.Linear(4, 1), nn.Parameter(torch.ones(1))
        self.warmth, self.best, self.phase, self.fitted = 1.0, None, "warm", False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.fitted:  # as ActNorm: from the first samples; the same on all ranks here
            self.scale.data.fill_(2.0)
            self.fitted = True
        if self.training:
            self.warmth *= 0.9
            self.best = self.warmth if self.best is None else min(self.best, self.warmth)
            self.phase = "warm" if self.best > 0.4 else "cold"
        return self.inner(x) * self.scale / self.warmth * (1.0 if self.phase == "warm" else 0.5)


class Counting(torch.optim.SGD):
    steps = 0

    def step(self, closure: Any = None) -> Any:
        self.steps += 1
        for group in self.param_groups:
            group["lr"] = 0.05 / (1 + self.steps)
        return super().step(closure)


class PlainValues(Fitted):
    """A model and an optimizer that keep what they need in plain attributes; the script sets one of them, too."""

    lost = "warmth"

    def build(self) -> nn.Module:
        return Cooling()

    def optimizer(self, parameters: Any) -> Optimizer:
        return Counting(parameters, lr=0.05)

    def plain(self) -> Result:
        torch.manual_seed(0)
        (x, y), model = points(), self.build().double()
        opt = self.optimizer(model.parameters())
        for epoch in range(self.epochs):
            model.warmth *= 2.0
            for i in batches(len(x), self.batch, epoch):
                self.update(model, opt, x[i], y[i])
        return weights(model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, _ = run.prepare(self.build(), self.optimizer, self.data(), global_batch=self.batch)
        if how.registers:
            run.register(model=model, opt=opt)
        for epoch in run.epochs(self.epochs):
            if epoch.done == 0:
                model.warmth *= 2.0
            for x, y in epoch:
                self.update(model, opt, x, y)
        return weights(model)


PROGRAMS = [
    SeededEpochs,
    RolloutsOnce,
    LookaheadClass,
    SamClass,
    ListedOptimizers,
    NamedOptimizers,
    FrozenStatistics,
    OwnGenerators,
    PlainValues,
]


# Every third one each time the tests run; the campaign has the others.
NUMBERED = [
    pytest.param(program, id=program.name(), marks=pytest.mark.campaign if number % 3 else [])
    for number, program in enumerate(PROGRAMS)
]


@pytest.mark.parametrize("program", NUMBERED)
def test_a_killed_training_goes_on_with_the_state_that_is_easily_overlooked(
    program: type[Program], tmp_path: Path
):
    trial = Trial(program, "ddp", 2, tmp_path)
    trial.uninterrupted()
    assert plain(program)[0].keys() == trial.whole.results[0].keys()
    trial.interrupted((0.9,), "1 steps", 3)  # in the middle of the last epoch
    assert not trial.problems, "\n".join(trial.problems)


def test_code_before_the_inner_loop_that_changes_a_resumed_epoch_is_an_error(tmp_path: Path):
    # In the second epoch's last step: a save of its middle is durable, whether or not the newest one is.
    killed = attempt(Rollouts, "none", 1, tmp_path, "1 steps", 8)
    assert killed.outcome == "killed"
    resumed = attempt(Rollouts, "none", 1, tmp_path, "1 steps")
    assert resumed.outcome == "changed-before-inner-loop"
    assert "y (run.register)" in resumed.why
    assert "epoch.done == 0" in resumed.why


class Bare(Optimizer):
    def __init__(self, inner: Optimizer) -> None:
        self.inner, self.param_groups, self.state, self.defaults = inner, inner.param_groups, inner.state, {}


class ByName(torch.optim.SGD):
    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.1)
        self.state["mood"] = {"good": True}


def test_an_optimizer_that_leaves_out_its_base_class_is_an_error_with_the_line_to_add():
    run = rankup.init()
    with pytest.raises(RankupError, match="does not call that of torch") as error:
        run.prepare(perceptron(), lambda p: Bare(torch.optim.SGD(p, lr=0.1)))
    assert error.value.code == "optimizer-not-initialized"


def test_a_state_that_belongs_to_no_parameter_is_an_error():
    run = rankup.init()
    _, _, data = run.prepare(perceptron(), ByName, Rows(*points()), global_batch=6)
    with pytest.raises(RankupError, match="keeps a state of 'mood'"):
        run.state.state_dict()


@pytest.mark.parametrize("stepped", [False, True])
def test_weights_that_are_tied_after_prepare_are_an_error_in_a_save(stepped: bool):
    run = rankup.init()
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1))
    model, opt, data = run.prepare(
        model, lambda p: torch.optim.Adam(p, lr=0.1), Rows(*points()), global_batch=6
    )
    for x, y in run.steps(data, steps=1 if stepped else 2):
        if run.global_step == (1 if stepped else 0):
            break
        run.backward(F.mse_loss(model(x.float()), y.float()))
        run.step(opt)
    model[1].weight = model[0].weight
    with pytest.raises(
        RankupError, match=r"Adam holds a parameter of shape \(4, 4\) that the model does not"
    ) as error:
        run.state.state_dict()
    assert error.value.code == "replaced-parameter"
