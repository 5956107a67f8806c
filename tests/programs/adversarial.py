"""Several models and optimizers that take turns."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import rankup
from programs.program import RAISED, How, Program, Result, batches, expect, perceptron, points, weights


def columns(samples: int = 20) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Real points, the generator's noise and the penalty's mixing, one row of each per sample."""
    x, _ = points(samples)
    generator = torch.Generator().manual_seed(11)
    noise = torch.randn(samples, 2, generator=generator, dtype=torch.float64)
    return x, noise, torch.rand(samples, 1, generator=generator, dtype=torch.float64)


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.RMSprop(parameters, lr=0.01)


class Gan(Program):
    """GAN: two optimizers take turns in each step."""

    expected = expect(any_world="plain-backward")

    def plain(self) -> Result:
        torch.manual_seed(0)
        x, noise, _ = columns()
        generator, critic = perceptron(2, 4).double(), perceptron(4, 1).double()
        opt_g, opt_c = sgd(generator.parameters()), sgd(critic.parameters())
        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch):
                self.turn(x[i], noise[i], generator, critic, opt_g, opt_c)
        return weights(generator, critic)

    def turn(self, x: Any, z: Any, generator: Any, critic: Any, opt_g: Any, opt_c: Any) -> None:
        fake = generator(z)
        loss = F.softplus(-critic(x)).mean() + F.softplus(critic(fake.detach())).mean()
        opt_c.zero_grad()
        loss.backward()
        opt_c.step()
        loss = F.softplus(-critic(fake)).mean()
        opt_g.zero_grad()
        loss.backward()
        opt_g.step()

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        first, second = perceptron(2, 4), perceptron(4, 1)
        generator, opt_g, data = run.prepare(
            first, sgd, rankup.ResidentData(*columns()), global_batch=self.batch
        )
        critic, opt_c, _ = run.prepare(second, sgd)
        for x, noise, _ in run.steps(data, epochs=self.epochs):
            self.turn(x, noise, generator, critic, opt_g, opt_c)
        return weights(generator, critic)


class WganGp(Program):
    """WGAN-GP: gradient penalty by autograd.grad, three critic steps for one of the generator."""

    expected = expect(fsdp="fsdp-not-reduced", any_world="plain-backward")
    epochs = 4

    def critic_step(self, x: Any, z: Any, mix: Any, generator: Any, critic: Any, opt: Any) -> None:
        fake = generator(z).detach()
        between = (mix * x + (1 - mix) * fake).requires_grad_()
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        penalty = (slope.norm(dim=1) - 1).square().mean()
        opt.zero_grad()
        (critic(fake).mean() - critic(x).mean() + 10 * penalty).backward()
        opt.step()

    def generator_step(self, z: Any, generator: Any, critic: Any, opt: Any) -> None:
        opt.zero_grad()
        (-critic(generator(z)).mean()).backward()
        opt.step()

    def plain(self) -> Result:
        torch.manual_seed(0)
        x, noise, mix = columns()
        generator, critic = perceptron(2, 4).double(), perceptron(4, 1).double()
        opt_g, opt_c = sgd(generator.parameters()), sgd(critic.parameters())
        count = 0
        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch):
                self.critic_step(x[i], noise[i], mix[i], generator, critic, opt_c)
                count += 1
                if count % 3 == 0:
                    self.generator_step(noise[i], generator, critic, opt_g)
        return weights(generator, critic)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        first, second = perceptron(2, 4), perceptron(4, 1)
        generator, opt_g, data = run.prepare(
            first, sgd, rankup.ResidentData(*columns()), global_batch=self.batch
        )
        critic, opt_c, _ = run.prepare(second, sgd)
        for x, noise, mix in run.steps(data, epochs=self.epochs):
            self.critic_step(x, noise, mix, generator, critic, opt_c)
            if (run.global_step + 1) % 3 == 0:
                self.generator_step(noise, generator, critic, opt_g)
        return weights(generator, critic)


class Autoencoder(Program):
    """Encoder and decoder as two models with one optimizer."""

    def plain(self) -> Result:
        torch.manual_seed(0)
        x, _ = points()
        encoder, decoder = perceptron(4, 2).double(), perceptron(2, 4).double()
        opt = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.02)
        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch):
                opt.zero_grad()
                F.mse_loss(decoder(encoder(x[i])), x[i]).backward()
                opt.step()
        return weights(encoder, decoder)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        (encoder, decoder), opt, data = run.prepare(
            [perceptron(4, 2), perceptron(2, 4)],
            lambda p: torch.optim.Adam(p, lr=0.02),
            rankup.ResidentData(points()[0]),
            global_batch=self.batch,
        )
        for x in run.steps(data, epochs=self.epochs):
            how.update(run, opt, F.mse_loss(decoder(encoder(x)), x))
        return weights(encoder, decoder)


class Distillation(Program):
    """Knowledge distillation from a frozen teacher."""

    @staticmethod
    def loss(logits: torch.Tensor, taught: torch.Tensor) -> torch.Tensor:
        return F.kl_div(F.log_softmax(logits / 2, 1), F.softmax(taught / 2, 1), reduction="batchmean") * 4

    def plain(self) -> Result:
        torch.manual_seed(0)
        x, _ = points()
        teacher = perceptron(4, 3, hidden=16).double().requires_grad_(False)
        student = perceptron(4, 3).double()
        opt = torch.optim.Adam(student.parameters(), lr=0.02)
        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch):
                opt.zero_grad()
                self.loss(student(x[i]), teacher(x[i])).backward()
                opt.step()
        return weights(student, teacher)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        teacher, student = perceptron(4, 3, hidden=16).requires_grad_(False), perceptron(4, 3)
        teacher, _, _ = run.prepare(teacher, None)
        student, opt, data = run.prepare(
            student,
            lambda p: torch.optim.Adam(p, lr=0.02),
            rankup.ResidentData(points()[0]),
            global_batch=self.batch,
        )
        for x in run.steps(data, epochs=self.epochs):
            with torch.no_grad():
                taught = teacher(x)
            how.update(run, opt, self.loss(student(x), taught))
        return weights(student, teacher)


class MomentumEncoder(Program):
    """BYOL: an online network, and a target that follows it by EMA within the step."""

    expected = expect(fsdp=RAISED)  # the target is whole, the online network sharded

    def step(self, x: Any, y: Any, online: Any, head: Any, target: Any) -> torch.Tensor:
        with torch.no_grad():
            wanted = F.normalize(target(y), dim=1)
        return 2 - 2 * (F.normalize(head(online(x)), dim=1) * wanted).sum(1).mean()

    @staticmethod
    def follow(target: nn.Module, online: nn.Module) -> None:
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
                slow.lerp_(fast, 0.1)

    def plain(self) -> Result:
        torch.manual_seed(0)
        x, _ = points()
        target = perceptron(4, 3).double().requires_grad_(False)
        online, head = perceptron(4, 3).double(), nn.Linear(3, 3).double()
        opt = torch.optim.SGD([*online.parameters(), *head.parameters()], lr=0.1)
        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch):
                opt.zero_grad()
                self.step(x[i], x[i].flip(1), online, head, target).backward()
                opt.step()
                self.follow(target, online)
        return weights(online, head, target)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        target = perceptron(4, 3).requires_grad_(False)
        both = nn.ModuleList([perceptron(4, 3), nn.Linear(3, 3)])
        target, _, _ = run.prepare(target, None)
        network = Chain(both)
        model, opt, data = run.prepare(
            network,
            lambda p: torch.optim.SGD(p, lr=0.1),
            rankup.ResidentData(points()[0]),
            global_batch=self.batch,
        )
        for x in run.steps(data, epochs=self.epochs):
            run.backward(self.step(x, x.flip(1), model, nn.Identity(), target))
            if run.step(opt):
                self.follow(target, network.parts[0])
        return weights(*network.parts, target)


class Chain(nn.Module):
    def __init__(self, parts: nn.ModuleList) -> None:
        super().__init__()
        self.parts = parts

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = part(x)
        return x
