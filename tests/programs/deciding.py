"""Loops that decide: early stopping, the best model, an evaluation on the way, a break."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import rankup
from programs.program import How, Program, Result, batches, expect, perceptron, points, weights, whole


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.03)


def plain_epoch(model: nn.Module, opt: Any, data: Any, batch: int, epoch: int, seed: int = 0) -> None:
    x, y = data
    for i in batches(len(x), batch, epoch, seed=seed):
        opt.zero_grad()
        F.mse_loss(model(x[i]), y[i]).backward()
        opt.step()


def evaluated(run: rankup.Run, model: nn.Module, held: Any) -> float:
    """The mean squared error over all ranks."""
    total, count = 0.0, 0
    for x, y in run.batches(rankup.ResidentData(*held), global_batch=4):
        total += F.mse_loss(model(x), y, reduction="sum").item()
        count += len(x)
    return run.sum(total) / run.sum(count)


def plainly_evaluated(model: nn.Module, held: Any) -> float:
    with torch.no_grad():
        return F.mse_loss(model(held[0]), held[1]).item()


class EarlyStopping(Program):
    """Early stopping: patience and the best loss are registered numbers."""

    epochs, patience = 12, 1

    @staticmethod
    def optimizer(parameters: Any) -> Any:
        return torch.optim.Adam(parameters, lr=0.05)

    def plain(self) -> Result:
        torch.manual_seed(0)
        model = perceptron().double()
        opt = self.optimizer(model.parameters())
        best, waited, trained = float("inf"), 0, 0
        for epoch in range(self.epochs):
            plain_epoch(model, opt, points(), self.batch, epoch)
            trained += 1
            loss = round(plainly_evaluated(model, points(9)), 6)
            best, waited = (loss, 0) if loss < best else (best, waited + 1)
            if waited > self.patience:
                break
        assert 2 < trained < self.epochs  # else this shows nothing
        return weights(model) | {"best": best, "trained": trained}

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(
            perceptron(), self.optimizer, rankup.ResidentData(*points()), global_batch=self.batch
        )
        values = run.register(best=float("inf"), waited=0, trained=0)
        for epoch in run.epochs(self.epochs, data):
            if values.waited > self.patience:
                break
            for x, y in epoch:
                how.update(run, opt, F.mse_loss(model(x), y))
            values.trained += 1
            loss = round(evaluated(run, model, points(9)), 6)
            values.waited = 0 if loss < values.best else values.waited + 1
            values.best = min(values.best, loss)
        return weights(model) | {"best": values.best, "trained": values.trained}


class BestModel(Program):
    """The best model is copied after each evaluation, and registered with its loss."""

    expected = expect(fsdp="sharded-registered")
    epochs = 5

    def plain(self) -> Result:
        torch.manual_seed(0)
        model = perceptron().double()
        opt = torch.optim.SGD(model.parameters(), lr=0.3)
        best, kept = float("inf"), copy.deepcopy(model.state_dict())
        for epoch in range(self.epochs):
            plain_epoch(model, opt, points(), self.batch, epoch)
            if (loss := plainly_evaluated(model, points(9))) < best:
                best, kept = loss, copy.deepcopy(model.state_dict())
        return (
            weights(model)
            | {f"best.{name}": value for name, value in kept.items()}
            | {"best": round(best, 12)}
        )

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        network = perceptron()
        model, opt, data = run.prepare(
            network,
            lambda p: torch.optim.SGD(p, lr=0.3),
            rankup.ResidentData(*points()),
            global_batch=self.batch,
        )
        kept = {name: value.detach().clone() for name, value in network.state_dict().items()}
        values = run.register(kept=kept, best=float("inf"))
        for epoch in run.epochs(self.epochs, data):
            for x, y in epoch:
                how.update(run, opt, F.mse_loss(model(x), y))
            if (loss := evaluated(run, model, points(9))) < values.best:
                values.best = loss
                for name, value in network.state_dict().items():
                    kept[name].copy_(value)
        found = {f"best.{name}": whole(value) for name, value in kept.items()}
        # A metric that run.sum added up is rounded by the number of ranks, also under any-world.
        return weights(model) | found | {"best": round(values.best, 12)}


class EvaluationInside(Program):
    """An evaluation within training, every third step; its best loss is registered."""

    expected = expect(any_world="plain-backward")

    def plain(self) -> Result:
        torch.manual_seed(0)
        x, y = points()
        model = perceptron().double()
        opt = adam(model.parameters())
        losses, step = [], 0
        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch):
                opt.zero_grad()
                F.mse_loss(model(x[i]), y[i]).backward()
                opt.step()
                step += 1
                if step % 3 == 0:
                    losses.append(plainly_evaluated(model, points(9)))
        return weights(model) | {f"loss.{number}": loss for number, loss in enumerate(losses)}

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(
            perceptron(), adam, rankup.ResidentData(*points()), global_batch=self.batch
        )
        losses: list[float] = []
        run.register(losses=losses)
        for x, y in run.steps(data, epochs=self.epochs):
            opt.zero_grad()
            F.mse_loss(model(x), y).backward()
            opt.step()
            if (run.global_step + 1) % 3 == 0:
                losses.append(evaluated(run, model, points(9)))
        return weights(model) | {f"loss.{number}": loss for number, loss in enumerate(losses)}


class BreakAtSteps(Program):
    """A loop that is left by a break at run.global_step, after run.save()."""

    resumes = False  # of a loop that ended by a break nothing is left to do: see TransformerSteps

    def plain(self) -> Result:
        torch.manual_seed(0)
        x, y = points()
        model = perceptron().double()
        opt = adam(model.parameters())
        numbers = [i for epoch in range(self.epochs) for i in batches(len(x), self.batch, epoch)]
        for i in numbers[:7]:
            opt.zero_grad()
            F.mse_loss(model(x[i]), y[i]).backward()
            opt.step()
        return weights(model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(
            perceptron(), adam, rankup.ResidentData(*points()), global_batch=self.batch
        )
        for x, y in run.steps(data, epochs=self.epochs):
            run.backward(F.mse_loss(model(x), y))
            if run.step(opt) and run.global_step + 1 >= 7:
                break
        return weights(model)


class EpochsByRange(Program):
    """run.steps(data, epochs=1) within a loop over range(3): refused, since epochs= counts from the beginning."""

    expected = expect(
        none="loop-per-epoch", ddp="loop-per-epoch", fsdp="loop-per-epoch", any_world="loop-per-epoch"
    )

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(
            perceptron(), adam, rankup.ResidentData(*points()), global_batch=self.batch
        )
        for _ in range(self.epochs):
            for x, y in run.steps(data, epochs=1):
                how.update(run, opt, F.mse_loss(model(x), y))
        return weights(model)


class EpochsOneMore(EpochsByRange):
    """run.steps(data, epochs=epoch + 1) within a loop over range(3): refused: the code between runs again."""

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(
            perceptron(), adam, rankup.ResidentData(*points()), global_batch=self.batch
        )
        for epoch in range(self.epochs):
            for x, y in run.steps(data, epochs=epoch + 1):
                how.update(run, opt, F.mse_loss(model(x), y))
        return weights(model)


class WhileLoop(Program):
    """A while loop over steps: run.steps(data, steps=N) behind next()."""

    steps = 10

    def plain(self) -> Result:
        torch.manual_seed(0)
        x, y = points()
        model = perceptron().double()
        opt = adam(model.parameters())
        numbers = [i for epoch in range(self.epochs) for i in batches(len(x), self.batch, epoch)]
        for i in numbers[: self.steps]:
            opt.zero_grad()
            F.mse_loss(model(x[i]), y[i]).backward()
            opt.step()
        return weights(model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(
            perceptron(), adam, rankup.ResidentData(*points()), global_batch=self.batch
        )
        loop = iter(run.steps(data, steps=self.steps))
        while (batch := next(loop, None)) is not None:
            x, y = batch
            how.update(run, opt, F.mse_loss(model(x), y))
        return weights(model)
