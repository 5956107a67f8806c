"""Averages of weights: EMA by hand and of torch, SWA, Lookahead."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import swa_utils

import rankup
from programs.program import RAISED, How, Program, Result, batches, expect, perceptron, points, weights, whole


class Shadow:
    """An exponential moving average of a model's parameters, as in many repositories."""

    def __init__(self, model: nn.Module, decay: float = 0.8) -> None:
        self.decay = decay
        self.values = [parameter.detach().clone() for parameter in model.parameters()]

    def update(self, model: nn.Module) -> None:
        with torch.no_grad():
            for value, parameter in zip(self.values, model.parameters(), strict=True):
                value.mul_(self.decay).add_(parameter, alpha=1 - self.decay)

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for value, saved in zip(self.values, state["values"], strict=True):
            value.copy_(saved)

    def result(self) -> Result:
        return {f"shadow.{number}": whole(value) for number, value in enumerate(self.values)}


class EmaByHand(Program):
    """EMA of the weights by hand, registered."""

    expected = expect(fsdp="sharded-registered")  # a registered list of shards

    def plain(self) -> Result:
        torch.manual_seed(0)
        x, y = points()
        model = perceptron().double()
        opt = torch.optim.Adam(model.parameters(), lr=0.05)
        shadow = Shadow(model)
        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch):
                opt.zero_grad()
                F.mse_loss(model(x[i]), y[i]).backward()
                opt.step()
                shadow.update(model)
        return weights(model) | shadow.result()

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(
            perceptron(),
            lambda p: torch.optim.Adam(p, lr=0.05),
            rankup.ResidentData(*points()),
            global_batch=self.batch,
        )
        shadow = Shadow(model)
        run.register(shadow=shadow)
        for x, y in run.steps(data, epochs=self.epochs):
            run.backward(F.mse_loss(model(x), y))
            if run.step(opt):
                shadow.update(model)
        return weights(model) | shadow.result()


class Swa(Program):
    """SWA of the last epochs with AveragedModel and SWALR (GroupNorm: nothing to update)."""

    epochs = 5

    expected = expect(fsdp=RAISED)  # torch copies no sharded model

    @staticmethod
    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 8), nn.GroupNorm(2, 8), nn.Tanh(), nn.Linear(8, 1))

    def plain(self) -> Result:
        torch.manual_seed(0)
        x, y = points()
        model = self.network().double()
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        averaged = swa_utils.AveragedModel(model)
        schedule = swa_utils.SWALR(opt, swa_lr=0.02, anneal_epochs=2)
        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch):
                opt.zero_grad()
                F.mse_loss(model(x[i]), y[i]).backward()
                opt.step()
            if epoch >= 1:
                averaged.update_parameters(model)
                schedule.step()
        return weights(averaged.module)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        network = self.network()
        model, opt, data = run.prepare(
            network,
            lambda p: torch.optim.SGD(p, lr=0.1),
            rankup.ResidentData(*points()),
            global_batch=self.batch,
        )
        averaged = swa_utils.AveragedModel(network)
        schedule = swa_utils.SWALR(opt, swa_lr=0.02, anneal_epochs=2)
        run.register(averaged=averaged, schedule=schedule)
        for epoch in run.epochs(self.epochs, data):
            for x, y in epoch:
                how.update(run, opt, F.mse_loss(model(x), y))
            if epoch.index >= 1:
                averaged.update_parameters(network)
                schedule.step()
        return weights(averaged.module)


class Lookahead(Program):
    """Lookahead around Adam: slow weights every third step."""

    expected = expect(fsdp="sharded-registered")
    every, share = 3, 0.5

    def look(self, slow: list[torch.Tensor], model: nn.Module) -> None:
        with torch.no_grad():
            for kept, parameter in zip(slow, model.parameters(), strict=True):
                kept.add_(parameter - kept, alpha=self.share)
                parameter.copy_(kept)

    def plain(self) -> Result:
        torch.manual_seed(0)
        x, y = points()
        model = perceptron().double()
        opt = torch.optim.Adam(model.parameters(), lr=0.05)
        slow = [parameter.detach().clone() for parameter in model.parameters()]
        count = 0
        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch):
                opt.zero_grad()
                F.mse_loss(model(x[i]), y[i]).backward()
                opt.step()
                count += 1
                if count % self.every == 0:
                    self.look(slow, model)
        return weights(model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(
            perceptron(),
            lambda p: torch.optim.Adam(p, lr=0.05),
            rankup.ResidentData(*points()),
            global_batch=self.batch,
        )
        slow = Shadow(model)
        run.register(slow=slow)
        for x, y in run.steps(data, epochs=self.epochs):
            run.backward(F.mse_loss(model(x), y))
            if run.step(opt) and (run.global_step + 1) % self.every == 0:
                self.look(slow.values, model)
        return weights(model)
