"""Loops that take gradients into their own hands: SAM, noise, second order, closures, several backward calls."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import rankup
from programs.program import (
    NOT_FOR,
    OWN,
    RAISED,
    How,
    Program,
    Result,
    batches,
    expect,
    perceptron,
    points,
    weights,
)


class OneLoop(Program):
    """A program whose body is one method: the plain loop and the loop with rankup call it alike."""

    abstract = True
    expected = expect(any_world="plain-backward")

    @staticmethod
    def network() -> nn.Module:
        return perceptron()

    @staticmethod
    def optimizer(parameters: Any) -> Any:
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

    def body(self, model: Any, opt: Any, x: Any, y: Any, step: int) -> None:
        raise NotImplementedError

    def plain(self) -> Result:
        torch.manual_seed(0)
        x, y = points()
        model = self.network().double()
        opt = self.optimizer(list(model.parameters()))
        step = 0
        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch):
                self.body(model, opt, x[i], y[i], step)
                step += 1
        return weights(model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, data = run.prepare(
            self.network(), self.optimizer, rankup.ResidentData(*points()), global_batch=self.batch
        )
        if how.registers:
            run.register(model=model)
        for x, y in run.steps(data, epochs=self.epochs):
            self.body(model, opt, x, y, run.global_step)
        return weights(model)


class Sam(OneLoop):
    """SAM: two forward and backward passes per step, at the weights and beside them."""

    def body(self, model: Any, opt: Any, x: Any, y: Any, step: int) -> None:
        F.mse_loss(model(x), y).backward()
        moved = []
        with torch.no_grad():
            norm = sum(p.grad.square().sum() for p in model.parameters()) ** 0.5
            for p in model.parameters():
                offset = p.grad * (0.05 / (norm + 1e-12))
                p.add_(offset)
                moved.append(offset)
        opt.zero_grad()
        F.mse_loss(model(x), y).backward()
        with torch.no_grad():
            for p, offset in zip(model.parameters(), moved, strict=True):
                p.sub_(offset)
        opt.step()
        opt.zero_grad()


class GradientNoise(OneLoop):
    """Noise on the gradients, from a generator that is seeded with the step."""

    expected = expect(fsdp=NOT_FOR, any_world="plain-backward")  # a shard's noise would be another one

    def body(self, model: Any, opt: Any, x: Any, y: Any, step: int) -> None:
        opt.zero_grad()
        F.mse_loss(model(x), y).backward()
        noise = torch.Generator().manual_seed(step)
        for p in model.parameters():
            p.grad.add_(torch.randn(p.shape, generator=noise, dtype=p.dtype), alpha=0.01)
        opt.step()


class GradientNoisePerRank(GradientNoise):
    """Noise on the gradients from the global generator: each rank draws its own, and replicas diverge."""

    expected = expect(none=OWN, ddp="replicas-differ", fsdp=NOT_FOR, any_world="plain-backward")

    def body(self, model: Any, opt: Any, x: Any, y: Any, step: int) -> None:
        opt.zero_grad()
        F.mse_loss(model(x), y).backward()
        for p in model.parameters():
            p.grad.add_(torch.randn_like(p), alpha=0.01)
        opt.step()


class GradientCentralization(OneLoop):
    """Gradient centralization: each row's mean is taken off before the step."""

    expected = expect(fsdp=NOT_FOR, any_world="plain-backward")  # by rows of DTensors

    def body(self, model: Any, opt: Any, x: Any, y: Any, step: int) -> None:
        opt.zero_grad()
        F.mse_loss(model(x), y).backward()
        for p in model.parameters():
            if p.dim() > 1:
                p.grad.sub_(p.grad.mean(dim=1, keepdim=True))
        opt.step()


class TwoBackwards(OneLoop):
    """Two losses, two backward calls, one step."""

    def body(self, model: Any, opt: Any, x: Any, y: Any, step: int) -> None:
        opt.zero_grad()
        F.mse_loss(model(x), y).backward()
        (0.1 * model(x.flip(0)).square().mean()).backward()
        opt.step()


class RetainedGraph(OneLoop):
    """Two losses of one forward pass: backward(retain_graph=True), then backward."""

    expected = expect(ddp="replicas-differ", any_world="plain-backward")

    def body(self, model: Any, opt: Any, x: Any, y: Any, step: int) -> None:
        opt.zero_grad()
        output = model(x)
        F.mse_loss(output, y).backward(retain_graph=True)
        (0.1 * output.square().mean()).backward()
        opt.step()


class Lbfgs(OneLoop):
    """LBFGS with a closure that is called several times per step."""

    expected = expect(fsdp=NOT_FOR, any_world="not-with-lbfgs")

    @staticmethod
    def optimizer(parameters: Any) -> Any:
        return torch.optim.LBFGS(parameters, lr=0.3, max_iter=4, history_size=5)

    def body(self, model: Any, opt: Any, x: Any, y: Any, step: int) -> None:
        def closure() -> torch.Tensor:
            opt.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss

        opt.step(closure)


class WeightPenalty(OneLoop):
    """An L1 penalty on the weights, added to the loss by hand."""

    expected = expect(fsdp=RAISED, any_world="plain-backward")  # a loss of shards and of whole tensors

    def body(self, model: Any, opt: Any, x: Any, y: Any, step: int) -> None:
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        (loss + 1e-2 * sum(p.abs().sum() for p in model.parameters())).backward()
        opt.step()


class InputGradient(OneLoop):
    """Double backward: a penalty on the gradient of the loss by the input."""

    expected = expect(fsdp=RAISED, any_world="plain-backward")  # torch's fsdp gathers for one backward pass

    def body(self, model: Any, opt: Any, x: Any, y: Any, step: int) -> None:
        opt.zero_grad()
        x = x.clone().requires_grad_()
        errors = (model(x) - y).square()
        (slope,) = torch.autograd.grad(errors.sum(), x, create_graph=True)
        (errors.mean() + 0.1 * slope.square().mean()).backward()
        opt.step()


class Adversarial(OneLoop):
    """Adversarial training (FGSM): the input is moved along the sign of its gradient."""

    def body(self, model: Any, opt: Any, x: Any, y: Any, step: int) -> None:
        moved = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(F.mse_loss(model(moved), y), moved)
        opt.zero_grad()
        F.mse_loss(model(x + 0.1 * slope.sign()), y).backward()
        opt.step()


class Physics(OneLoop):
    """A physics-informed network: derivatives by the input in the loss."""

    expected = expect(fsdp=RAISED, any_world="plain-backward")

    def body(self, model: Any, opt: Any, x: Any, y: Any, step: int) -> None:
        opt.zero_grad()
        t = x.clone().requires_grad_()
        u = model(t)
        (du,) = torch.autograd.grad(u.sum(), t, create_graph=True)
        (ddu,) = torch.autograd.grad(du[:, 0].sum(), t, create_graph=True)
        ((du[:, 1:2] - 0.1 * ddu[:, :1]).square().mean() + (u - y).square().mean()).backward()
        opt.step()


class Checkpointed(OneLoop):
    """Gradient checkpointing of the first block."""

    def body(self, model: Any, opt: Any, x: Any, y: Any, step: int) -> None:
        opt.zero_grad()
        F.mse_loss(model(x), y).backward()
        opt.step()

    @staticmethod
    def network() -> nn.Module:
        return Recomputed()


class Recomputed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh())
        self.last = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(checkpoint(self.first, x, use_reentrant=False))
        return found


class Clamped(torch.autograd.Function):
    """A straight-through sign."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.sign()

    @staticmethod
    def backward(ctx: Any, *slopes: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return slopes[0] * (x.abs() <= 1)


class Binary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(Clamped.apply(self.first(x)))
        return found


class CustomFunction(Checkpointed):
    """A custom autograd Function: binary activations, straight through."""

    @staticmethod
    def network() -> nn.Module:
        return Binary()


class Maml(OneLoop):
    """MAML: an inner step by autograd.grad and functional_call, the outer loss through it."""

    expected = expect(ddp="gradients-not-reduced", fsdp=NOT_FOR, any_world="plain-backward")

    def body(self, model: Any, opt: Any, x: Any, y: Any, step: int) -> None:
        inner = getattr(model, "module", model)
        named = dict(inner.named_parameters())
        loss = F.mse_loss(functional_call(inner, named, (x,)), y)
        slopes = torch.autograd.grad(loss, list(named.values()), create_graph=True)
        moved = {name: p - 0.1 * g for (name, p), g in zip(named.items(), slopes, strict=True)}
        opt.zero_grad()
        F.mse_loss(functional_call(inner, moved, (x,)), y).backward()
        opt.step()
