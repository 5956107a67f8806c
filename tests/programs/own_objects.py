"""Loops that use the model as the object that it is: attributes, methods, hooks, copies, calls of the original."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint

import rankup
from programs.own_gradients import OneLoop
from programs.program import (
    NOT_FOR,
    How,
    Program,
    Result,
    batches,
    expect,
    perceptron,
    points,
    weights,
)


class Tempered(nn.Module):
    """What a loop may turn at: an attribute, and a method beside forward."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 1)
        self.temperature = 1.0

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.first(x) / self.temperature)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(self.features(x))
        return found


class AttributeCurriculum(OneLoop):
    """A curriculum by an attribute of the model, set in each step: model.temperature = …"""

    lost = "model.temperature"

    @staticmethod
    def network() -> nn.Module:
        return Tempered()

    def body(self, model: Any, opt: Any, x: Any, y: Any, step: int) -> None:
        model.temperature = 1.0 + 0.2 * step
        opt.zero_grad()
        F.mse_loss(model(x), y).backward()
        opt.step()


class OtherMethod(OneLoop):
    """A loss from another method than forward."""

    expected = expect(ddp="gradients-not-reduced", fsdp="fsdp-outside-forward", any_world="plain-backward")

    @staticmethod
    def network() -> nn.Module:
        return Tempered()

    def body(self, model: Any, opt: Any, x: Any, y: Any, step: int) -> None:
        opt.zero_grad()
        F.mse_loss(model.last(model.features(x)), y).backward()
        opt.step()


class CheckpointedWhole(OneLoop):
    """Gradient checkpointing of the whole model, from outside: checkpoint(model, x)."""

    def body(self, model: Any, opt: Any, x: Any, y: Any, step: int) -> None:
        opt.zero_grad()
        F.mse_loss(checkpoint(model, x, use_reentrant=False), y).backward()
        opt.step()


class PseudoLabels(OneLoop):
    """Self-training: the model labels its own batch without gradients, in eval mode, and learns from that as well."""

    def body(self, model: Any, opt: Any, x: Any, y: Any, step: int) -> None:
        model.eval()
        with torch.no_grad():
            guessed = model(x + 0.01)
        model.train()
        opt.zero_grad()
        (F.mse_loss(model(x), y) + 0.3 * F.mse_loss(model(x + 0.02), guessed)).backward()
        opt.step()


class HookedFeatures(OneLoop):
    """A forward hook keeps features of an inner layer, which are part of the loss."""

    def body(self, model: Any, opt: Any, x: Any, y: Any, step: int) -> None:
        kept: list[torch.Tensor] = []
        handle = model[1].register_forward_hook(lambda module, args, output: kept.append(output))
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        handle.remove()
        (loss + 0.05 * kept[0].square().mean()).backward()
        opt.step()


class Pruned(OneLoop):
    """Half of the weights of a layer are pruned by a mask."""

    @staticmethod
    def network() -> nn.Module:
        model = perceptron()
        prune.l1_unstructured(model[0], "weight", amount=0.5)  # type: ignore[index,no-untyped-call]
        return model

    def body(self, model: Any, opt: Any, x: Any, y: Any, step: int) -> None:
        opt.zero_grad()
        F.mse_loss(model(x), y).backward()
        opt.step()


class OriginalCalled(Program):
    """A script that goes on to use the model that it gave to prepare, and not the one that it got."""

    expected = expect(any_world="plain-backward")

    def plain(self) -> Result:
        torch.manual_seed(0)
        x, y = points()
        model = perceptron().double()
        opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch):
                opt.zero_grad()
                F.mse_loss(model(x[i]), y[i]).backward()
                opt.step()
        return weights(model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model = perceptron()
        _, opt, data = run.prepare(
            model,
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
            rankup.ResidentData(*points()),
            global_batch=self.batch,
        )
        for x, y in run.steps(data, epochs=self.epochs):
            opt.zero_grad()
            F.mse_loss(model(x), y).backward()
            opt.step()
        return weights(model)


class MeanTeacher(Program):
    """A mean teacher: a deep copy of the prepared model, moved after each step, registered."""

    expected = expect(fsdp=NOT_FOR, any_world="plain-backward")  # torch copies no sharded model

    @staticmethod
    def body(model: Any, teacher: Any, opt: Any, x: Any, y: Any) -> None:
        with torch.no_grad():
            wanted = teacher(x)
        opt.zero_grad()
        output = model(x)
        (F.mse_loss(output, y) + 0.5 * F.mse_loss(output, wanted)).backward()
        opt.step()
        with torch.no_grad():
            for mine, theirs in zip(teacher.parameters(), model.parameters(), strict=True):
                mine.lerp_(theirs, 0.1)

    def plain(self) -> Result:
        torch.manual_seed(0)
        x, y = points()
        model = perceptron().double()
        teacher = copy.deepcopy(model)
        opt = torch.optim.Adam(model.parameters(), lr=0.02)
        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch):
                self.body(model, teacher, opt, x[i], y[i])
        return weights(model, teacher)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(
            perceptron(),
            lambda p: torch.optim.Adam(p, lr=0.02),
            rankup.ResidentData(*points()),
            global_batch=self.batch,
        )
        teacher = copy.deepcopy(model)
        run.register(teacher=teacher)
        for x, y in run.steps(data, epochs=self.epochs):
            self.body(model, teacher, opt, x, y)
        return weights(model, teacher)


class LearnedLoss(Program):
    """A loss with parameters of its own (two tasks, weighed by learned uncertainty): two models, one optimizer."""

    expected = expect(any_world="plain-backward")

    @staticmethod
    def made() -> tuple[nn.Module, nn.Module]:
        return perceptron(outputs=2), Uncertainty()

    def plain(self) -> Result:
        torch.manual_seed(0)
        x, y = points()
        model, loss = (part.double() for part in self.made())
        opt = torch.optim.Adam([*model.parameters(), *loss.parameters()], lr=0.02)
        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch):
                opt.zero_grad()
                loss(model(x[i]), y[i]).backward()
                opt.step()
        return weights(model, loss)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        (model, loss), opt, data = run.prepare(
            self.made(),
            lambda p: torch.optim.Adam(p, lr=0.02),
            rankup.ResidentData(*points()),
            global_batch=self.batch,
        )
        for x, y in run.steps(data, epochs=self.epochs):
            opt.zero_grad()
            loss(model(x), y).backward()
            opt.step()
        return weights(model, loss)


class Uncertainty(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.log_variance = nn.Parameter(torch.tensor([0.1, -0.1]))

    def forward(self, output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        errors = torch.stack([(output[:, :1] - y).square().mean(), (output[:, 1:] - y.sin()).square().mean()])
        return (errors * torch.exp(-self.log_variance) + self.log_variance).sum()


class LotteryTicket(Program):
    """Weights are put back to those of the beginning after the first epoch, by load_state_dict."""

    expected = expect(any_world="plain-backward")

    @staticmethod
    def copied(model: Any) -> dict[str, torch.Tensor]:
        return {name: value.detach().clone() for name, value in model.state_dict().items()}

    def plain(self) -> Result:
        torch.manual_seed(0)
        x, y = points()
        model = perceptron().double()
        first = self.copied(model)
        opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch):
                opt.zero_grad()
                F.mse_loss(model(x[i]), y[i]).backward()
                opt.step()
            if epoch == 0:
                model.load_state_dict(first)
        return weights(model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(
            perceptron(),
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
            rankup.ResidentData(*points()),
            global_batch=self.batch,
        )
        first = self.copied(model)
        for epoch in run.epochs(self.epochs):
            for x, y in epoch:
                opt.zero_grad()
                F.mse_loss(model(x), y).backward()
                opt.step()
            if epoch.index == 0:
                model.load_state_dict(first)
        return weights(model)
