"""Behind ``run.backward`` and ``run.step``: micro-batches weighed, the loss scaled, gradients clipped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from rankup.errors import RankupError
from rankup.runtime.loaders import Batch
from rankup.runtime.scaler import LossScaler
from rankup.strategies import Strategy


class Gradients:
    """The gradients of one run. ``batch`` is the (micro-)batch at hand; None outside of the loop."""

    def __init__(
        self,
        models: list[nn.Module],
        strategy: Strategy,
        replicas: int,
        device: torch.device,
        *,
        scaled: bool,
    ) -> None:
        self.accumulate = 1  # micro-batches per step
        self.clips: dict[int, float] = {}  # id of an optimizer → largest norm of its gradients
        self.norm: torch.Tensor | None = None  # before clipping, at the last step that clipped
        self.scaler = LossScaler() if scaled else None
        # Weigh what enters backward, and not what comes out of it: where a layer sums over ranks in there, as
        # SyncBatchNorm does, it is too late behind it.
        self.weigh_losses = False
        self._loss_weight = 1.0
        self.unfinished = False  # whether a loop was left in the middle of a step
        self.backward_calls = 0
        self.step_calls = 0
        self._models = models  # those of the run, also of a later prepare
        self._witness: nn.Parameter | None = None  # has a gradient since the last micro-batch
        self._strategy = strategy
        self._replicas = replicas
        self._device = device

    @property
    def need_calls(self) -> bool:
        """Whether the loop must call ``run.backward`` and ``run.step``."""
        return (
            self.accumulate > 1
            or self.weigh_losses
            or bool(self.clips or self.scaler or self._strategy.shards)
        )

    def forward_backward(
        self,
        batch: Batch | None,
        model: nn.Module,
        loss: Callable[[Any, Any], torch.Tensor],
        x: Any,
        y: Any,
    ) -> tuple[Any, Any]:
        pipeline = getattr(model, "forward_backward", None)
        if pipeline is None:
            output = model(x)
            value = loss(output, y)
            self.backward(batch, value)
            return value, output
        self._check_kept()
        self.backward_calls += 1
        if batch is not None and batch.samples == 0:
            return None, None  # a filler of a micro-batch: the same on all ranks, so nobody waits
        found: tuple[Any, Any] = pipeline(x, y, self._weight(batch))
        return found

    def backward(self, batch: Batch | None, loss: torch.Tensor) -> None:
        self._check_kept()
        self.backward_calls += 1
        if batch is not None and batch.samples == 0:
            # A filler counts nothing: there is a backward only where the others wait for it.
            awaited = self._replicas > 1 and (batch.last or self._strategy.lockstep)
            if self._strategy.shards or (self.accumulate > 1 and not awaited):
                return
        weight = self._weight(batch) * self._loss_weight
        # The strategy takes the mean over ranks; here every micro-batch is weighed by what it holds.
        self._strategy.backward(loss if weight == 1.0 else loss * weight)
        if self.accumulate > 1 and batch is not None and not batch.last:
            parameters = (parameter for model in self._models for parameter in model.parameters())
            self._witness = next((p for p in parameters if p.grad is not None), None)

    def weigh(self, weight: float) -> None:
        """How much this rank's gradient counts in the mean over ranks, from the next backward on."""
        if self.weigh_losses:
            self._loss_weight = weight
        else:
            self._strategy.weigh(weight)

    def check_finished(self) -> None:
        """Before a loop: an error where the one before was left between two micro-batches, whose gradients lie there
        still, and would count in a step of this one."""
        if self.unfinished:
            raise RankupError(
                "left-mid-step",
                "the loop before was left in the middle of a step, by a break between two micro-batches",
                hint="leave it behind the last one: `if run.batch.last and …: break`",
                exit_code=1,
            )

    def _check_kept(self) -> None:
        """An error where the gradients of the micro-batches before are gone: a plain loop begins with zero_grad()."""
        if self._witness is not None and self._witness.grad is None:
            raise RankupError(
                "gradients-cleared",
                "the gradients of a micro-batch were cleared before the step",
                hint="leave zero_grad() out of the loop: run.step(opt) does it after the last micro-batch",
                exit_code=1,
            )
        self._witness = None

    def _weight(self, batch: Batch | None) -> float:
        """What a loss is multiplied by before backward: its micro-batch's share of the step, and fp16's factor."""
        share = 1.0
        if batch is not None and batch.samples:
            if self._strategy.shards:  # which are added up
                share = batch.samples / batch.total
            elif self.accumulate > 1:  # of which each rank has a sum, and the strategy takes the mean
                share = batch.samples * self._replicas / batch.total
        return share * (1.0 if self.scaler is None else self.scaler.factor(batch))

    def step(self, batch: Batch | None, optimizer: Optimizer) -> bool:
        self.step_calls += 1
        if batch is not None and not batch.last:
            return False
        self._check_kept()
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._strategy.reduce(parameters)
        finite = self.scaler is None or self.scaler.unscale(parameters, self._strategy, self._device)
        if finite:
            if id(optimizer) in self.clips:  # after unscaling: the norm is that of the gradients
                self.norm = self._strategy.clip(parameters, self.clips[id(optimizer)])
            self._strategy.step(optimizer)
        optimizer.zero_grad()
        return finite
