"""An error for a schedule that steps once per micro-batch: it would depend on the number of processes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from rankup.errors import RankupError
from rankup.runtime.live_objects import objects_of


class ScheduleGuard:
    """Of one loop over micro-batches or virtual shards. ``remember`` before a body that is not the last of its step,
    ``stepped`` when ``run.step`` was called in there, ``check`` after it."""

    def __init__(self, optimizers: Iterable[Optimizer]) -> None:
        self._optimizers = list(optimizers)
        ours = {id(optimizer) for optimizer in self._optimizers}
        # Also those that are not registered: once per loop, by a walk over all live objects.
        self._schedules = [
            thing
            for thing in objects_of(lambda kind: issubclass(kind, LRScheduler))
            if id(getattr(thing, "optimizer", None)) in ours
        ]
        self._before: list[int] = []
        self._options: list[dict[str, Any]] | None = None

    def remember(self) -> None:
        self._before = [schedule.last_epoch for schedule in self._schedules]
        self._options = None

    def stepped(self) -> None:
        """Until here a loop may set the step's learning rate, the same in each of its micro-batches."""
        self._options = self._read()

    def check(self) -> None:
        """Raises RankupError ``scheduler-per-micro-batch``."""
        moved = [
            type(schedule).__name__
            for schedule, before in zip(self._schedules, self._before, strict=True)
            if schedule.last_epoch != before
        ]
        if not moved and (self._options is None or self._options == self._read()):
            return
        raise RankupError(
            "scheduler-per-micro-batch",
            f"{' and '.join(moved) or 'the options of an optimizer'} changed in a body in which the optimizer did not "
            "step: after a micro-batch or virtual shard that is not the last",
            context="so the learning rate would depend on their number, and on that of the processes",
            hint="if run.step(opt): sched.step()",
            exit_code=1,
        )

    def _read(self) -> list[dict[str, Any]]:
        return [
            {name: value for name, value in group.items() if isinstance(value, (int, float, tuple))}
            | {
                name: value.tolist()
                for name, value in group.items()
                if isinstance(value, torch.Tensor) and value.device.type == "cpu"  # elsewhere it would wait
            }
            for optimizer in self._optimizers
            for group in optimizer.param_groups
        ]
