"""``run.backward`` and ``run.step``: losses are weighted and scaled, gradients clipped.

With its weight, the sum of a loss (or the mean, if the strategy takes that) over ranks and micro-batches has the
gradient of the global batch. A plain ``loss.backward()`` gets the same weight after backward, by
``Strategy.set_gradient_scale``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

from rankup.errors import RankupError
from rankup.runtime.data.portions import Batch
from rankup.runtime.distributed.control import Control
from rankup.runtime.loop.backward_checks import (
    check_reduction,
    mixed_counts,
    scale_gradients,
    units_of,
    warn_uncounted,
)
from rankup.runtime.loop.gradient_guard import GradientGuard
from rankup.runtime.loop.optimizer import check_step
from rankup.runtime.seed import derive, seed_everything
from rankup.strategies import Strategy

if TYPE_CHECKING:
    from rankup.runtime.loop.loss_scaling import LossScaler
    from rankup.runtime.loop.schedules import ScheduleGuard
from rankup.strategies.weights import nothing_counted


class Step(NamedTuple):
    """A step that the optimizer has taken."""

    #: The norm of its gradients before clipping, if ``run.prepare(clip=)`` was given for this optimizer.
    grad_norm: torch.Tensor | None


_UNCLIPPED = Step(None)


class Gradients:
    """The gradients of one run. ``batch`` is the (micro-)batch at hand; None outside of the loop."""

    def __init__(
        self,
        models: list[nn.Module],
        strategy: Strategy,
        replicas: int,
        device: torch.device,
        control: Control | None,
        *,
        scaled: bool,
    ) -> None:
        self.accumulate = 1  # micro-batches per step
        self.clips: dict[int, float] = {}  # id of an optimizer → largest norm of its gradients
        self.scaler: LossScaler | None = None
        if scaled:
            from rankup.runtime.loop.loss_scaling import LossScaler

            self.scaler = LossScaler()
        # Weight what enters backward, and not its result: if a layer sums over ranks inside backward, as SyncBatchNorm
        # does, it is too late afterwards.
        self.weigh_losses = False
        self.unfinished = False  # whether a loop was left in the middle of a step
        self.backward_calls = 0
        self.step_calls = 0
        self.batch: Batch | None = None  # whose step it is: never one of an evaluation
        self.gathered = 0  # calls of run.gather with gradients in this body
        self.entering: float | None = None  # this rank's weight, inside of run.backward
        self.weights: set[float] | None = None  # those that run.backward had in the closure that runs
        self.schedules: ScheduleGuard | None = None  # of a loop whose steps have several bodies
        self.part_seed = 0  # of what is drawn after run.backward, the same for all parts of a step
        self._models = models  # those of the run, also of a later prepare
        self._untouched = GradientGuard()
        self.strategy = strategy
        self.replicas = replicas
        self._device = device
        self.control = control if replicas > 1 else None
        self.sample_weight = 1.0  # what plain backward calls are weighed by
        self._calls = 0  # of run.backward in this body
        self._units = 0.0  # of this rank, in the micro-batches of the step until now
        self._counted: bool | None = None  # whether they are counted; None before the first call
        self._step_begins = True
        self._dummies = False  # whether the strategy expects some in this step

    @property
    def need_calls(self) -> bool:
        """Whether the loop must call ``run.backward`` and ``run.step``."""
        return (
            self.accumulate > 1
            or self.weigh_losses
            or bool(self.clips or self.scaler or self.strategy.by_parts)
        )

    # ------------------------------------------------------ around a loop's body

    def begin(self, batch: Batch) -> None:
        """The loop's body is about to get ``batch``."""
        self.batch, self.gathered, self._calls = batch, 0, 0
        if self._step_begins:
            if self.accumulate > 1:
                self._units, self._counted = 0.0, None
            if batch.dummies or self._dummies:
                self._expect_dummies(batch.dummies)
        self._step_begins = batch.last
        if self.strategy.by_parts:
            return
        # With micro-batches run.backward weighs.
        even = self.accumulate > 1 and batch.samples > 0
        weight = 1.0 if even else batch.samples * self.replicas / batch.total
        if weight != self.sample_weight:
            self.sample_weight = weight
            self.strategy.set_gradient_scale(weight)

    def end(self) -> None:
        """The loop has ended: gradients are no longer weighted."""
        self.batch, self.schedules, self._step_begins, self.sample_weight = None, None, True, 1.0
        self.strategy.set_gradient_scale(1.0)
        if self._dummies:
            self._expect_dummies(False)

    def _expect_dummies(self, expected: bool) -> None:
        self._dummies = expected
        self.strategy.expect_dummies(expected)

    def check_finished(self) -> None:
        """Before a loop: an error if the loop before was left between two micro-batches. Its gradients are still there,
        and would count in a step of this loop."""
        if self.unfinished:
            raise RankupError(
                "left-mid-step",
                "the loop before was left in the middle of a step, by a break between two micro-batches",
                hint="break after the last micro-batch: `if run.batch.last and …: break`",
                exit_code=1,
            )

    # ---------------------------------------------------------------- backward

    def forward_backward(
        self,
        batch: Batch | None,
        model: nn.Module,
        loss: Callable[[Any, Any], torch.Tensor],
        x: Any,
        y: Any,
    ) -> tuple[Any, Any]:
        if not self.strategy.pipelined:
            output = model(x)
            value = loss(output, y)
            self.backward(batch, value)
            return value, output
        self._untouched.check()
        self.backward_calls += 1
        with self._unscaled(batch):
            if batch is not None and batch.samples == 0:
                return None, None  # a dummy batch of a micro-batch: the same on all ranks, so nobody waits
            scale = self._share(batch) * self._scale(batch)
            return self.strategy.forward_backward(model, x, y, scale)

    def backward(
        self,
        batch: Batch | None,
        loss: torch.Tensor,
        count: float | torch.Tensor | None = None,
        reduction: str = "mean",
    ) -> None:
        self._untouched.check()
        check_reduction(reduction, count, self.strategy, self.accumulate, self.gathered)
        self.backward_calls += 1
        self._calls += 1
        dummy = batch is not None and batch.samples == 0
        units = None if count is None else 0.0 if dummy else units_of(count)
        if units == 0.0 and not dummy:
            warn_uncounted(loss)
        if self.strategy.by_parts:
            with self._unscaled(batch):
                self._backward_part(batch, loss, units, reduction)
            return
        if self.accumulate > 1:
            self._check_alike(units is not None)
            if (
                units is not None and not self._dummies
            ):  # the counts are exchanged with the last micro-batch alone
                self._expect_dummies(True)
        last = batch is None or batch.last
        if units is not None:
            weight = self._counted_weight(batch, units)
        elif reduction == "global":
            weight = 1.0  # a dummy batch's too: it computes the others' loss
        elif dummy:
            weight = 0.0
        else:
            weight = float(self.replicas) if reduction == "sum" else self._share(batch)
        # A loss that counts nothing has a backward only if other ranks wait for it.
        awaited = self.replicas > 1 and (last or self.strategy.lockstep)
        with self._unscaled(batch):
            if weight or awaited or self.accumulate == 1:
                self._enter(loss, weight, self._scale(batch))
        if self.accumulate > 1 and not last:
            self._untouched.remember(self._models)
        elif self.accumulate > 1 and units is not None and batch is not None:
            scale_gradients(self._models, batch.total / self._sum(self._units))

    def _enter(self, loss: torch.Tensor, weight: float, scale: float) -> None:
        """Backward of this rank's loss; nothing else is weighted meanwhile."""
        self.entering = weight
        if self.weights is not None:
            self.weights.add(weight)
        before, entering = self.sample_weight, 1.0 if weight else 0.0
        if not weight:  # no gradient of it is used, not even a NaN: 0 × NaN would be one
            loss = torch.nan_to_num(loss, 0.0, 0.0, 0.0) * 0.0
        elif weight * scale != 1.0:
            loss = loss * (weight * scale)
        if entering != before:
            self.strategy.set_gradient_scale(entering)
        try:
            self.strategy.backward(loss)
        finally:
            if entering != before:
                self.strategy.set_gradient_scale(before)
            self.entering = None

    def _backward_part(
        self, batch: Batch | None, loss: torch.Tensor, units: float | None, reduction: str
    ) -> None:
        """Backward of one part; after a rank's last part the strategy sums the gradients of all."""
        if batch is None:
            raise RankupError(
                "no-shard",
                f'with exact="{self.strategy.exact}" run.backward must be in a loop over run.steps or run.epochs',
                exit_code=1,
            )
        counts = batch.samples > 0 and units != 0.0
        share = 1.0 if reduction == "sum" else (batch.samples if units is None else units) / batch.total
        weight = share * self._scale(batch)
        self.strategy.backward_part((loss if weight == 1.0 else loss * weight) if counts else None, units)
        # The same for each part: noise that is added to gradients must be the same on all ranks.
        seed_everything(derive(self.part_seed, self._calls))

    def _share(self, batch: Batch | None) -> float:
        """The weight of a loss that is the mean over this rank's samples."""
        if batch is None or batch.samples == 0:
            return 1.0
        return batch.samples * self.replicas / batch.total

    def _scale(self, batch: Batch | None) -> float:
        return 1.0 if self.scaler is None else self.scaler.factor(batch)

    def _unscaled(self, batch: Batch | None) -> AbstractContextManager[None]:
        """Around a backward: after the last micro-batch's, gradients are free of the loss scale."""
        if self.scaler is None or (batch is not None and not batch.last):
            return nullcontext()
        return self.scaler.unscaled(batch, self._models)

    def _counted_weight(self, batch: Batch | None, units: float) -> float:
        """The weight of a loss that is the mean over ``units``. A collective, except with micro-batches: these are
        first divided by the samples, and after the last one by the sum of all units."""
        if self.accumulate > 1 and batch is not None:
            self._units += units
            return units * self.replicas / batch.total
        return units * self.replicas / self._sum(units)

    def _sum(self, units: float) -> float:
        """Those of all ranks. The same exchange tells whether some rank has none, as with a dummy batch."""
        total, without = units, 0.0
        if self.control is not None:
            total, without = self.control.add("run.backward", units, not units)
        if total <= 0.0:
            raise nothing_counted()
        if without and not self._dummies:
            self._expect_dummies(True)
        return total

    def _check_alike(self, counted: bool) -> None:
        """An error if one division at the end of the step cannot be right for all of its gradients."""
        if self._counted not in (None, counted) or (counted and self._calls > 1):
            raise mixed_counts()
        self._counted = counted

    # -------------------------------------------------------------------- step

    def step(self, batch: Batch | None, optimizer: Optimizer) -> Step | None:
        check_step(optimizer)
        self.step_calls += 1
        if batch is not None and not batch.last:
            if self.schedules is not None:
                self.schedules.stepped()
            return None
        self._untouched.check()
        self.strategy.reduce(optimizer)
        taken = None
        if self.scaler is None or self.scaler.finite(_trained_by(optimizer), self.strategy, self._device):
            taken = _UNCLIPPED
            if id(optimizer) in self.clips:
                taken = Step(self.strategy.clip(_trained_by(optimizer), self.clips[id(optimizer)]))
            self.strategy.step(optimizer)
        optimizer.zero_grad()
        return taken


def _trained_by(optimizer: Optimizer) -> list[nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
