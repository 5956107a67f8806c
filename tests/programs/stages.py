"""Several trainings in one process, and trainings that change on the way: folds, sweeps, stages, unfreezing."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import rankup
from programs.deciding import adam, plain_epoch
from programs.program import How, Program, Result, perceptron, points, weights


class CrossValidation(Program):
    """Three folds, each a training of its own in one process: rankup.init(name="fold-0")."""

    epochs = 2

    @staticmethod
    def fold(number: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = points(27)
        held = torch.arange(27) % 3 == number
        return x[~held], y[~held]

    def plain(self) -> Result:
        found: Result = {}
        for number in range(3):
            torch.manual_seed(number)
            model = perceptron().double()
            opt = adam(model.parameters())
            for epoch in range(self.epochs):
                plain_epoch(model, opt, self.fold(number), self.batch, epoch, seed=number)
            found |= {f"fold-{number}.{name}": value for name, value in weights(model).items()}
        return found

    def with_rankup(self, how: How) -> Result:
        found: Result = {}
        for number in range(3):
            run = how.init(name=f"fold-{number}", seed=number)
            model, opt, data = run.prepare(
                perceptron(), adam, rankup.ResidentData(*self.fold(number)), global_batch=self.batch
            )
            for x, y in run.steps(data, epochs=self.epochs):
                how.update(run, opt, F.mse_loss(model(x), y))
            found |= {f"fold-{number}.{name}": value for name, value in weights(model).items()}
        return found


class Sweep(Program):
    """Three learning rates, one after another in one process, told apart by their order."""

    epochs = 2
    rates = (0.003, 0.03, 0.1)

    def plain(self) -> Result:
        found: Result = {}
        for rate in self.rates:
            torch.manual_seed(0)
            model = perceptron().double()
            opt = torch.optim.Adam(model.parameters(), lr=rate)
            for epoch in range(self.epochs):
                plain_epoch(model, opt, points(), self.batch, epoch)
            found |= {f"{rate}.{name}": value for name, value in weights(model).items()}
        return found

    def with_rankup(self, how: How) -> Result:
        found: Result = {}
        for rate in self.rates:
            run = how.init()
            model, opt, data = run.prepare(
                perceptron(),
                lambda p: torch.optim.Adam(p, lr=rate),  # noqa: B023
                rankup.ResidentData(*points()),
                global_batch=self.batch,
            )
            for x, y in run.steps(data, epochs=self.epochs):
                how.update(run, opt, F.mse_loss(model(x), y))
            found |= {f"{rate}.{name}": value for name, value in weights(model).items()}
        return found


class Stages(Program):
    """Pre-training, then fine-tuning of its weights on other data: two trainings in one process."""

    epochs = 2

    def plain(self) -> Result:
        torch.manual_seed(0)
        model = perceptron().double()
        opt = adam(model.parameters())
        for epoch in range(self.epochs):
            plain_epoch(model, opt, points(), self.batch, epoch)
        fine = torch.optim.SGD(model.parameters(), lr=0.05)
        for epoch in range(self.epochs):
            plain_epoch(model, fine, points(13), 4, epoch)
        return weights(model)

    def with_rankup(self, how: How) -> Result:
        run = how.init(name="pre-training")
        network = perceptron()
        model, opt, data = run.prepare(network, adam, rankup.ResidentData(*points()), global_batch=self.batch)
        for x, y in run.steps(data, epochs=self.epochs):
            how.update(run, opt, F.mse_loss(model(x), y))
        learned = {name.removeprefix("0."): value for name, value in weights(model).items()}
        run = how.init(name="fine-tuning")
        network = perceptron().double()
        network.load_state_dict(learned)
        model, fine, data = run.prepare(
            network,
            lambda p: torch.optim.SGD(p, lr=0.05),
            rankup.ResidentData(*points(13)),
            global_batch=4,
        )
        for x, y in run.steps(data, epochs=self.epochs):
            how.update(run, fine, F.mse_loss(model(x), y))
        return weights(model)


class GradualUnfreezing(Program):
    """Gradual unfreezing: a layer joins the training at the second epoch."""

    def plain(self) -> Result:
        torch.manual_seed(0)
        model = perceptron().double()
        first = model.get_submodule("0")
        first.requires_grad_(False)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(self.epochs):
            first.requires_grad_(epoch >= 1)
            plain_epoch(model, opt, points(), self.batch, epoch)
        return weights(model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        network = perceptron()
        first = network.get_submodule("0")
        first.requires_grad_(False)
        model, opt, data = run.prepare(
            network,
            torch.optim.SGD(network.parameters(), lr=0.1),
            rankup.ResidentData(*points()),
            global_batch=self.batch,
        )
        for epoch in run.epochs(self.epochs, data):
            first.requires_grad_(epoch.index >= 1)
            for x, y in epoch:
                how.update(run, opt, F.mse_loss(model(x), y))
        return weights(model)


class UnfreezingByRate(Program):
    """Gradual unfreezing by learning rates: everything is trained, the first layer with rate 0 at first."""

    def plain(self) -> Result:
        torch.manual_seed(0)
        model = perceptron().double()
        opt = self.optimizer(model.parameters())
        for epoch in range(self.epochs):
            opt.param_groups[0]["lr"] = 0.1 if epoch >= 1 else 0.0
            plain_epoch(model, opt, points(), self.batch, epoch)
        return weights(model)

    @staticmethod
    def optimizer(parameters: Any) -> Any:
        first, *rest = list(parameters)
        return torch.optim.SGD([{"params": [first]}, {"params": rest}], lr=0.1)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(
            perceptron(), self.optimizer, rankup.ResidentData(*points()), global_batch=self.batch
        )
        for epoch in run.epochs(self.epochs, data):
            opt.param_groups[0]["lr"] = 0.1 if epoch.index >= 1 else 0.0
            for x, y in epoch:
                how.update(run, opt, F.mse_loss(model(x), y))
        return weights(model)


class GroupLater(Program):
    """add_param_group after the first epoch: a head joins the optimizer."""

    def plain(self) -> Result:
        torch.manual_seed(0)
        model = perceptron().double()
        body, head = model.get_submodule("0"), model.get_submodule("2")
        opt = torch.optim.Adam(body.parameters(), lr=0.02)
        for epoch in range(self.epochs):
            if epoch == 1:
                opt.add_param_group({"params": list(head.parameters()), "lr": 0.05})
            plain_epoch(model, opt, points(), self.batch, epoch)
        return weights(model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        network = perceptron()
        model, opt, data = run.prepare(
            network,
            lambda p: torch.optim.Adam(p[:2], lr=0.02),
            rankup.ResidentData(*points()),
            global_batch=self.batch,
        )
        head = network.get_submodule("2")
        for epoch in run.epochs(self.epochs, data):
            if epoch.index >= 1 and len(opt.param_groups) == 1:
                opt.add_param_group({"params": list(head.parameters()), "lr": 0.05})
            for x, y in epoch:
                opt.zero_grad()  # of a head that has just joined: run.step clears what its optimizer has
                how.update(run, opt, F.mse_loss(model(x), y))
        return weights(model)


class ActiveLearning(Program):
    """Active learning: three rounds, each a training of its own on more data, from the last weights."""

    epochs = 1

    def plain(self) -> Result:
        torch.manual_seed(0)
        model = perceptron().double()
        x, y = points(30)
        chosen = torch.arange(10)
        for _ in range(3):
            opt = adam(model.parameters())
            for epoch in range(2):
                plain_epoch(model, opt, (x[chosen], y[chosen]), self.batch, epoch)
            with torch.no_grad():
                errors = (model(x) - y).square().squeeze(1)
            errors[chosen] = -1
            chosen = torch.cat([chosen, errors.topk(5).indices.sort().values])
        return weights(model) | {"chosen": chosen.tolist()}

    def with_rankup(self, how: How) -> Result:
        x, y = points(30)
        chosen, learned, model = torch.arange(10), None, nn.Module()
        for number in range(3):
            run = how.init(name=f"round-{number}")
            network = perceptron().double()
            if learned is not None:
                network.load_state_dict(learned)
            model, opt, data = run.prepare(
                network, adam, rankup.ResidentData(x[chosen], y[chosen]), global_batch=self.batch
            )
            for a, b in run.steps(data, epochs=2):
                how.update(run, opt, F.mse_loss(model(a), b))
            learned = {name.removeprefix("0."): value for name, value in weights(model).items()}
            judge = perceptron().double()
            judge.load_state_dict(learned)
            with torch.no_grad():
                errors = (judge(x) - y).square().squeeze(1)
            errors[chosen] = -1
            chosen = torch.cat([chosen, errors.topk(5).indices.sort().values])
        return weights(model) | {"chosen": chosen.tolist()}
