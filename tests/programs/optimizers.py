"""Optimizers of torch.optim: the same loop, another update."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

import rankup
from programs.program import How, Program, Result, batches, perceptron, points, weights


class Fit(Program):
    """A loop of three lines; the optimizer is the program."""

    abstract = True

    @staticmethod
    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        raise NotImplementedError

    def plain(self) -> Result:
        torch.manual_seed(0)
        x, y = points()
        model = perceptron().double()
        opt = self.optimizer(model.parameters())
        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch):
                opt.zero_grad()
                F.mse_loss(model(x[i]), y[i]).backward()
                opt.step()
        return weights(model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(
            perceptron(), self.optimizer, rankup.ResidentData(*points()), global_batch=self.batch
        )
        for x, y in run.steps(data, epochs=self.epochs):
            how.update(run, opt, F.mse_loss(model(x), y))
        return weights(model)


class Sgd(Fit):
    """SGD with Nesterov momentum and weight decay."""

    @staticmethod
    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3)


class Adam(Fit):
    """Adam with AMSGrad."""

    @staticmethod
    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=0.02, amsgrad=True)


class AdamW(Fit):
    """AdamW, decoupled weight decay."""

    @staticmethod
    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=0.02, weight_decay=0.1)


class Adagrad(Fit):
    """Adagrad."""

    @staticmethod
    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.Adagrad(parameters, lr=0.1, lr_decay=0.01)


class RmsProp(Fit):
    """RMSprop, centred, with momentum."""

    @staticmethod
    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.RMSprop(parameters, lr=0.01, momentum=0.5, centered=True)
