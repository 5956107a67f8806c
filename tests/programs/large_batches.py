"""Micro-batches and clipping: by hand, and by rankup's options."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import rankup
from programs.program import How, Program, Result, batches, expect, perceptron, points, weights

OPTIMIZER = torch.optim.Adam


def whole_batches(program: Program, clip: float | None = None, group: int = 1) -> Result:
    """The plain loop; ``group``: batches whose mean gradient is one step (an epoch's tail is a step as well)."""
    torch.manual_seed(0)
    x, y = points()
    model = perceptron().double()
    opt = OPTIMIZER(model.parameters(), lr=0.05)
    for epoch in range(program.epochs):
        every = list(batches(len(x), program.batch, epoch))
        for start in range(0, len(every), group):
            opt.zero_grad()
            for i in every[start : start + group]:
                (F.mse_loss(model(x[i]), y[i]) / group).backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            opt.step()
    return weights(model)


def prepared(program: Program, run: rankup.Run, **options: Any) -> tuple[nn.Module, Any, Any]:
    data = rankup.ResidentData(*points())
    return run.prepare(
        perceptron(), lambda p: OPTIMIZER(p, lr=0.05), data, global_batch=program.batch, **options
    )


class AccumulateOption(Program):
    """accumulate=3: micro-batches of one step."""

    expected = expect(any_world="not-any-world")

    def plain(self) -> Result:
        return whole_batches(self)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = prepared(self, run, accumulate=3)
        for x, y in run.steps(data, epochs=self.epochs):
            run.backward(F.mse_loss(model(x), y))
            run.step(opt)
        return weights(model)


class AccumulateByHand(Program):
    """Accumulation by hand: loss / 2 in each batch, a step in every second one."""

    expected = expect(any_world="plain-backward")

    def plain(self) -> Result:
        return whole_batches(self, group=2)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = prepared(self, run)
        for epoch in run.epochs(self.epochs, data):
            for number, (x, y) in enumerate(epoch, epoch.done):
                (F.mse_loss(model(x), y) / 2).backward()
                if (number + 1) % 2 == 0 or number + 1 == len(epoch):
                    opt.step()
                    opt.zero_grad()
        return weights(model)


class ClipOption(Program):
    """clip=0.3: the norm of the whole gradient."""

    def plain(self) -> Result:
        return whole_batches(self, clip=0.3)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = prepared(self, run, clip=0.3)
        for x, y in run.steps(data, epochs=self.epochs):
            run.backward(F.mse_loss(model(x), y))
            run.step(opt)
        return weights(model)


class ClipByHand(Program):
    """clip_grad_norm_ by hand before the step."""

    expected = expect(any_world="plain-backward")

    def plain(self) -> Result:
        return whole_batches(self, clip=0.3)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = prepared(self, run)
        for x, y in run.steps(data, epochs=self.epochs):
            F.mse_loss(model(x), y).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.3)
            opt.step()
            opt.zero_grad()
        return weights(model)


class ClipValues(Program):
    """clip_grad_value_ by hand before the step."""

    expected = expect(any_world="plain-backward")

    def plain(self) -> Result:
        torch.manual_seed(0)
        x, y = points()
        model = perceptron().double()
        opt = OPTIMIZER(model.parameters(), lr=0.05)
        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch):
                opt.zero_grad()
                F.mse_loss(model(x[i]), y[i]).backward()
                nn.utils.clip_grad_value_(model.parameters(), 0.05)
                opt.step()
        return weights(model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = prepared(self, run)
        for x, y in run.steps(data, epochs=self.epochs):
            F.mse_loss(model(x), y).backward()
            nn.utils.clip_grad_value_(model.parameters(), 0.05)
            opt.step()
            opt.zero_grad()
        return weights(model)
