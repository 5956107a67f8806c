"""Learning-rate schedules: per epoch, per step, by an evaluation, warm-up, several one after another."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F
from torch.optim import lr_scheduler

import rankup
from programs.program import How, Program, Result, batches, perceptron, points, weights


class PerEpoch(Program):
    """StepLR, stepped after each epoch."""

    abstract = True

    @staticmethod
    def schedule(opt: Any) -> Any:
        return lr_scheduler.StepLR(opt, step_size=1, gamma=0.5)

    def plain(self) -> Result:
        torch.manual_seed(0)
        x, y = points()
        model = perceptron().double()
        opt = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
        schedule = self.schedule(opt)
        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch):
                opt.zero_grad()
                F.mse_loss(model(x[i]), y[i]).backward()
                opt.step()
            schedule.step()
        return weights(model) | {"lr": schedule.get_last_lr()[0]}

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(
            perceptron(),
            lambda p: torch.optim.SGD(p, lr=0.2, momentum=0.9),
            rankup.ResidentData(*points()),
            global_batch=self.batch,
        )
        schedule = self.schedule(opt)
        run.register(schedule=schedule)
        for epoch in run.epochs(self.epochs, data):
            for x, y in epoch:
                how.update(run, opt, F.mse_loss(model(x), y))
            schedule.step()
        return weights(model) | {"lr": schedule.get_last_lr()[0]}


class StepLr(PerEpoch):
    """StepLR, stepped after each epoch."""


class CosineRestarts(PerEpoch):
    """CosineAnnealingWarmRestarts, stepped after each epoch."""

    epochs = 5

    @staticmethod
    def schedule(opt: Any) -> Any:
        return lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=2)


class PerStep(Program):
    """A schedule that is stepped with the optimizer."""

    abstract = True

    @staticmethod
    def schedule(opt: Any) -> Any:
        raise NotImplementedError

    def plain(self) -> Result:
        torch.manual_seed(0)
        x, y = points()
        model = perceptron().double()
        opt = torch.optim.AdamW(model.parameters(), lr=0.05)
        schedule = self.schedule(opt)
        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch):
                opt.zero_grad()
                F.mse_loss(model(x[i]), y[i]).backward()
                opt.step()
                schedule.step()
        return weights(model) | {"lr": schedule.get_last_lr()[0]}

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(
            perceptron(),
            lambda p: torch.optim.AdamW(p, lr=0.05),
            rankup.ResidentData(*points()),
            global_batch=self.batch,
        )
        schedule = self.schedule(opt)
        run.register(schedule=schedule)
        for x, y in run.steps(data, epochs=self.epochs):
            run.backward(F.mse_loss(model(x), y))
            if run.step(opt):
                schedule.step()
        return weights(model) | {"lr": schedule.get_last_lr()[0]}


class OneCycle(PerStep):
    """OneCycleLR, stepped with the optimizer; cycles momentum too."""

    @staticmethod
    def schedule(opt: Any) -> Any:
        return lr_scheduler.OneCycleLR(opt, max_lr=0.1, total_steps=13)


class WarmUp(PerStep):
    """LambdaLR: linear warm-up, then the inverse square root."""

    @staticmethod
    def schedule(opt: Any) -> Any:
        return lr_scheduler.LambdaLR(opt, lambda step: min((step + 1) / 4, 2 / (step + 1) ** 0.5))


class SequentialLr(PerStep):
    """SequentialLR: warm-up, then cosine."""

    @staticmethod
    def schedule(opt: Any) -> Any:
        first = lr_scheduler.LinearLR(opt, start_factor=0.1, total_iters=4)
        return lr_scheduler.SequentialLR(opt, [first, lr_scheduler.CosineAnnealingLR(opt, T_max=8)], [4])


class Plateau(Program):
    """ReduceLROnPlateau on an evaluation after each epoch."""

    epochs = 5

    def plain(self) -> Result:
        torch.manual_seed(0)
        x, y = points()
        held_x, held_y = points(9)
        model = perceptron().double()
        opt = torch.optim.SGD(model.parameters(), lr=0.2)
        schedule = lr_scheduler.ReduceLROnPlateau(opt, factor=0.3, patience=0)
        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch):
                opt.zero_grad()
                F.mse_loss(model(x[i]), y[i]).backward()
                opt.step()
            with torch.no_grad():
                schedule.step(F.mse_loss(model(held_x), held_y).item())
        return weights(model) | {"lr": opt.param_groups[0]["lr"]}

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(
            perceptron(),
            lambda p: torch.optim.SGD(p, lr=0.2),
            rankup.ResidentData(*points()),
            global_batch=self.batch,
        )
        schedule = lr_scheduler.ReduceLROnPlateau(opt, factor=0.3, patience=0)
        run.register(schedule=schedule)
        held = rankup.ResidentData(*points(9))
        for epoch in run.epochs(self.epochs, data):
            for x, y in epoch:
                how.update(run, opt, F.mse_loss(model(x), y))
            total, count = 0.0, 0
            for x, y in run.batches(held, global_batch=4):
                total += F.mse_loss(model(x), y, reduction="sum").item()
                count += len(x)
            schedule.step(run.sum(total) / run.sum(count))
        return weights(model) | {"lr": opt.param_groups[0]["lr"]}
