"""One warning for a loss or a metric that is NaN, with its step: a training should not continue for hours unnoticed."""

from __future__ import annotations

import math

import torch

from rankup.core.whole_lines import warn
from rankup.runtime.data.portions import Batch


class NanWatch:
    """Of one run. On a CPU it warns at once; a GPU, for which it does not wait, is read at the end of an epoch."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._told = False
        self._on_device: dict[str, torch.Tensor] = {}  # what → the first step at which it was NaN, or -1

    def see(self, what: str, value: torch.Tensor | float, batch: Batch | None, step: int) -> None:
        """``value`` of this rank's samples of ``batch`` at ``step`` (from 1). A dummy batch may be NaN."""
        if self._told or (batch is not None and not batch.samples):
            return
        if not isinstance(value, torch.Tensor):
            if isinstance(value, float) and math.isnan(value):
                self._warn(what, step)
        elif not value.is_floating_point():
            return
        elif value.device.type == "cpu":
            # Of one number, as a loss is, faster than by kernels.
            if math.isnan(value.item()) if value.numel() == 1 else bool(torch.isnan(value.detach()).any()):
                self._warn(what, step)
        else:
            first = self._on_device.get(what)
            if first is None:
                first = torch.full((), -1, dtype=torch.int64, device=value.device)
            nan = torch.isnan(value.detach()).any() & (first < 0)
            self._on_device[what] = torch.where(nan, step, first)

    def ask(self) -> None:
        """Called at points that wait for the device anyway."""
        for what, first in self._on_device.items():
            if not self._told and (step := int(first)) >= 0:
                self._warn(what, step)
        self._on_device.clear()

    def _warn(self, what: str, step: int) -> None:
        self._told = True
        warn(
            f"{what} is NaN at step {step} on rank {self._rank}: the weights will be NaN as well, unless "
            "your loop leaves this step out (said once)"
        )
