"""torch.func, and training without a data set: reinforcement learning."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

import rankup
from programs.program import NOT_FOR, OWN, How, Program, Result, batches, expect, perceptron, points, weights


def clipped(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
    """The mean of the samples' gradients, each of a norm of 1 at most."""
    named = {name: p.detach() for name, p in model.named_parameters()}

    def loss(values: dict[str, torch.Tensor], a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(functional_call(model, values, (a[None],)), b[None])

    each = vmap(grad(loss), in_dims=(None, 0, 0))(named, x, y)
    norms = torch.stack([g.flatten(1).square().sum(1) for g in each.values()]).sum(0).sqrt()
    scale = (1.0 / norms).clamp(max=1.0)
    return {name: (g * scale.reshape(-1, *[1] * (g.dim() - 1))).mean(0) for name, g in each.items()}


class PerSampleGradients(Program):
    """DP-SGD: per-sample gradients by vmap(grad), clipped, averaged by hand with run.mean: refused on several ranks."""

    expected = expect(ddp="gradients-not-reduced", fsdp=NOT_FOR, any_world="shard-sum")

    def plain(self) -> Result:
        torch.manual_seed(0)
        x, y = points()
        model = perceptron().double()
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch):
                for name, value in clipped(model, x[i], y[i]).items():
                    model.get_parameter(name).grad = value
                opt.step()
        return weights(model)

    def average(self, run: rankup.Run, gradient: torch.Tensor) -> Any:
        return run.mean(gradient)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        network = perceptron()
        model, opt, data = run.prepare(
            network,
            lambda p: torch.optim.SGD(p, lr=0.1),
            rankup.ResidentData(*points()),
            global_batch=self.batch,
        )
        for x, y in run.steps(data, epochs=self.epochs):
            for name, value in clipped(network, x, y).items():
                network.get_parameter(name).grad = self.average(run, value)
            opt.step()
        return weights(model)


class PerSampleGradientsAlone(PerSampleGradients):
    """DP-SGD that forgets the other ranks: gradients that nobody has averaged."""

    expected = expect(ddp="gradients-not-reduced", fsdp=NOT_FOR, any_world="plain-backward")

    def average(self, run: rankup.Run, gradient: torch.Tensor) -> Any:
        return gradient


class Replay:
    """A toy environment and its replay buffer: the same on every rank, since its generator is seeded."""

    def __init__(self) -> None:
        self.random = random.Random(4)
        self.rows: list[list[float]] = []

    def play(self, model: Any) -> None:
        state = [self.random.uniform(-1, 1) for _ in range(4)]
        with torch.no_grad():
            value = model(torch.tensor([state], dtype=torch.float64)).item()
        self.rows.append([*state, 0.5 * value + sum(state)])

    def sample(self, count: int) -> torch.Tensor:
        chosen = [self.random.choice(self.rows) for _ in range(count)]
        return torch.tensor(chosen, dtype=torch.float64)


class ReplayBuffer(Program):
    """Reinforcement learning: every rank plays the same, samples the same, and trains without run.steps."""

    resumes = False  # what is trained outside of rankup's loops is in no snapshot
    expected = expect(any_world="no-shard")

    def plain(self) -> Result:
        torch.manual_seed(0)
        model = perceptron().double()
        opt = torch.optim.Adam(model.parameters(), lr=0.02)
        replay = Replay()
        for _ in range(12):
            replay.play(model)
            rows = replay.sample(5)
            opt.zero_grad()
            F.mse_loss(model(rows[:, :4]), rows[:, 4:]).backward()
            opt.step()
        return weights(model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        network = perceptron()
        model, opt, _ = run.prepare(network, lambda p: torch.optim.Adam(p, lr=0.02))
        replay = Replay()
        for _ in range(12):
            replay.play(model)
            rows = replay.sample(5)
            how.update(run, opt, F.mse_loss(model(rows[:, :4]), rows[:, 4:]))
        return weights(model)


class PolicyGradient(Program):
    """REINFORCE on a bandit: actions are drawn in the loop's body."""

    expected = expect(none=OWN, ddp=OWN, fsdp=OWN, any_world=OWN)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(
            perceptron(4, 3),
            lambda p: torch.optim.Adam(p, lr=0.05),
            rankup.ResidentData(points()[0]),
            global_batch=self.batch,
        )
        for x in run.steps(data, epochs=self.epochs):
            policy = torch.distributions.Categorical(logits=model(x))
            actions = policy.sample()
            reward = (actions == x[:, :3].argmax(1)).to(x.dtype) - 0.3
            how.update(run, opt, -(policy.log_prob(actions) * reward).mean())
        return weights(model)
