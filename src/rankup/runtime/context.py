"""The state of one run, as the parts of the runtime share it.

Users see ``Run`` (``api.py``), which holds one of these. The parts get it as ``run``; none of them imports ``Run``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer

from rankup.core.rundir import RunDir
from rankup.core.whole_lines import end_line
from rankup.runtime.checkpointing.adapters import Stateful
from rankup.runtime.checkpointing.registered import Values
from rankup.runtime.data.batches import DataFeed
from rankup.runtime.data.feeds import RankContext
from rankup.runtime.data.portions import NONE, Batch, Portion
from rankup.runtime.distributed.control import Control
from rankup.runtime.loop.gradients import Gradients
from rankup.runtime.loop.nan_watch import NanWatch
from rankup.runtime.loop.precision import Precision
from rankup.runtime.records.logged_numbers import Logged, one_number
from rankup.runtime.records.training_records import TrainingRecords
from rankup.strategies import Strategy
from rankup.world import World

if TYPE_CHECKING:
    from rankup.runtime.checkpointing.identities import Held

#: Names the directory of what ``rankup verify`` compares. Without it nothing of ``tracing`` is imported.
TRACE_VARIABLE = "RANKUP_TRACE"


class RunContext:
    """Of one run on this rank. To make one starts nothing: no process group, no thread, no hook."""

    def __init__(
        self,
        world: World,
        device: torch.device,
        precision: Precision,
        strategy: Strategy,
        seed: int,
        control: Control | None,
        *,
        name: str = "",
        directory: RunDir | None = None,
        loggers: tuple[str, ...] = (),
        best_by: str = "",
    ) -> None:
        self.world = world
        self.device = device
        self.precision = precision
        self.strategy = strategy
        self.seed = seed
        self.control = control  # of the small numbers that ranks exchange; None for one process
        self.name = name
        self.directory = directory
        self.plan = strategy.batch_plan(world.rank, world.world_size)
        self.replicas = self.plan.replicas
        # If all ranks work on the same batch, the feed is that of one process.
        self.here = RankContext(self.plan, seed, device, precision, None if self.plan.shared else control)

        self.models: list[nn.Module] = []  # as the user made them; what prepare returned may wrap them
        self.optimizers: list[Optimizer] = []
        self.prepared: list[tuple[nn.Module, Optimizer | None]] = []  # each model with its optimizer
        self.feeds: list[DataFeed] = []  # what prepare made, in its order
        self.registered: dict[str, Stateful] = {}
        self.values = Values()  # the simple ones of what was registered
        self.held: Held | None = None  # what the others hold
        self.forgotten: set[str] = set()  # names of values that no snapshot has, and that a resume may lose
        self.metrics: dict[str, Logged] = {}  # logged numbers that are in the snapshots
        self.best_by = best_by  # the name of the one that chooses the best snapshot
        self.records = TrainingRecords(world.rank, world.world_size, device, directory, name, loggers)

        self._done = 0  # steps, without those of ``portion``
        self.portion: Portion = NONE  # that the loop gives now
        self._batch: Batch | None = None
        self._begun = 1  # batches of the portion, as far as it was asked for them
        self.evaluating = False  # whether the code that runs now is the body of a ``run.batches``
        self.buffers_differ = False
        self.said_not_iterated = False  # of an epoch
        self.nan_watch = NanWatch(world.rank)
        self.gradients = Gradients(
            self.models, strategy, self.replicas, device, control, scaled=precision.scaled
        )

    @property
    def global_step(self) -> int:
        """Steps that are done, over all loops and attempts; in the loop's body those before it."""
        return self._done + self.portion.done

    @property
    def steps_reached(self) -> int:
        """One more than ``global_step`` from the moment a step's last batch is handed out."""
        return self._done + self.portion.handed

    def give(self, portion: Portion) -> None:
        """It is handed out next; its first batch is ``batch``."""
        self.portion, self._begun = portion, 1

    def stand_at(self, step: int) -> None:
        """So many steps are done, and no portion is handed out."""
        self._done, self.portion = step, NONE

    @property
    def batch(self) -> Batch | None:
        """The one that the loop's body has now."""
        if (handed := self.portion.handed) > self._begun:  # as the loop does for the first one
            self._begun, self._batch = handed, self.portion.batch
            self.gradients.begin(self._batch)
        return self._batch

    @batch.setter
    def batch(self, batch: Batch | None) -> None:
        self._batch = batch

    def print(self, *values: object, **options: Any) -> None:
        """``print`` on rank 0 alone."""
        if self.world.is_main:
            end_line(options.get("file") or sys.stdout)
            print(*values, **{"flush": True, **options})

    def log(self, numbers: Mapping[str, Any]) -> None:
        """Numbers of ``run.log``. Those of an epoch, and the one that chooses the best snapshot, go into snapshots."""
        self.records.log(numbers, self.steps_reached)
        if self.batch is None:
            self.metrics |= {name: one_number(name, value) for name, value in numbers.items()}
        elif self.best_by in numbers:
            self.metrics[self.best_by] = one_number(self.best_by, numbers[self.best_by])

    @property
    def samples(self) -> int:
        """Samples of the current batch that this rank reports."""
        return self.batch.samples if self.batch is not None and self.plan.reports else 0

    def check_sum(self) -> None:
        """An error in a body that ranks may run unequally often: a sum over ranks would miss parts, or never end."""
        if self.batch is not None:
            self.strategy.check("sum_in_body")

    def check_buffers(self) -> None:
        """An error in a body, if the buffers are those of a part of the batch, and not a state of the run."""
        if self.batch is not None and any(True for model in self.models for _ in model.buffers()):
            self.strategy.check("buffers_in_body")

    def settle_buffers(self) -> None:
        """Average the ranks' BatchNorm statistics: after an epoch, and before an evaluation."""
        if self.buffers_differ and self.replicas > 1:
            from rankup.runtime.distributed import buffers

            for model in self.models:
                buffers.restore(buffers.averaged_buffers(model, self.world.world_size))
        self.buffers_differ = False
