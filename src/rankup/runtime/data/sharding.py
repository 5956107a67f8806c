"""Which samples, in which order, on which rank: pure functions of (seed, epoch, step, rank, world size).

One global order per epoch; global batch ``k`` is its ``k``-th slice; a rank's share is a contiguous part of that
slice. Nothing is padded and, without ``drop_last``, nothing is dropped: the last global batch may be short, shares
differ by at most one sample, and with many ranks a share may be empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from rankup.errors import RankupError
from rankup.runtime.data.order import Order, Sequential, StepPlan, cuts, shuffled
from rankup.runtime.seed import derive
from rankup.strategies.batch_plan import BatchPlan

if TYPE_CHECKING:
    from rankup.runtime.data.samplers import SampledOrder


@dataclass(frozen=True)
class Sharding:
    """How one data set is cut. ``length`` and ``global_batch`` in samples."""

    length: int
    global_batch: int
    rank: int
    world_size: int
    seed: int
    shuffle: bool
    fixed_parts: int = 0  # whatever the number of ranks: ``BatchPlan.parts``
    drop_last: bool = False  # leave out the short last global batch
    sampled: SampledOrder | None = None  # the order of a user's sampler
    most_steps: int | None = None  # of an epoch, if it is shortened

    def __post_init__(self) -> None:
        if self.length == 0:
            raise RankupError("empty-dataset", "the data set holds no samples")
        if self.drop_last and self.sampled is None and self.length < self.global_batch:
            raise RankupError(
                "nothing-left",
                f"drop_last=True leaves out all {self.length} samples: a global batch has {self.global_batch}",
                hint=f"a global_batch of at most {self.length}, or drop_last=False",
            )

    @property
    def steps(self) -> int:
        """Steps per epoch; the short last one counts, if it is not left out."""
        steps = self.length // self.global_batch if self.drop_last else -(-self.length // self.global_batch)
        return steps if self.most_steps is None else min(steps, self.most_steps)

    def plan(self, epoch: int) -> StepPlan:
        """The order of an epoch and how it is cut into steps, the same on every rank and for every world size."""
        if self.sampled is not None:
            return self.sampled.plan(epoch).first(self.most_steps)
        order = self.order(epoch)
        starts = cuts(self.length, self.global_batch, drop_last=self.drop_last)
        return StepPlan(order, starts, order).first(self.most_steps)

    def left_out(self) -> str | None:
        """A message about what ``drop_last`` leaves out; None if nothing."""
        samples = self.length if self.sampled is None else len(self.plan(0).order)
        if not self.drop_last or not (number := samples % self.global_batch):
            return None
        when = "in each epoch" if self.sampled is None else "in the first epoch"
        return f"drop_last=True: {number} of {samples} samples are left out {when}"

    def order(self, epoch: int) -> Order:
        """Every sample once, the same on every rank and for every world size."""
        if not self.shuffle:
            return Sequential(self.length)
        return shuffled(self.length, derive(self.seed, "order", epoch))

    def total(self, step: int) -> int:
        """Samples in global batch ``step``."""
        return min(self.global_batch, self.length - step * self.global_batch)

    def parts(self, total: int, micro_batches: int) -> list[tuple[int, int, int]]:
        """(number, start, stop) of what this rank computes on at once, in a global batch of ``total`` samples: its
        micro-batches, or its virtual shards."""
        return BatchPlan(self.rank, self.world_size, self.fixed_parts).pieces(total, micro_batches)


def smallest_share(plan: StepPlan, world_size: int, micro_batches: int, parts: int) -> tuple[int, bool]:
    """The smallest non-zero number of samples that a rank computes on at once in an epoch; and whether only the last
    step has so few."""

    def smallest(total: int) -> int:
        ranks = (BatchPlan(rank, world_size, parts) for rank in range(world_size))
        sizes = [b - a for rank in ranks for _, a, b in rank.pieces(total, micro_batches)]
        return min(size for size in sizes if size)

    totals, last_total = plan.totals()
    before, last = [smallest(total) for total in totals], smallest(last_total)
    return min([*before, last]), not before or min(before) > last


_FLAT = (nn.BatchNorm1d, nn.LazyBatchNorm1d)
_ALONG_A_LINE = (nn.Conv1d, nn.ConvTranspose1d, nn.LazyConv1d, nn.LazyConvTranspose1d)


def sees_one_value(model: nn.Module) -> str | None:
    """The name of a BatchNorm layer that gets one value per channel from one sample; None without one.

    BatchNorm2d and BatchNorm3d get many values per sample. BatchNorm1d does after a Conv1d, but not after a Linear.
    """
    along_a_line = False
    for name, module in model.named_modules():
        if isinstance(module, _ALONG_A_LINE):
            along_a_line = True
        elif isinstance(module, (nn.Linear, nn.LazyLinear)):
            along_a_line = False
        elif isinstance(module, _FLAT) and module.training and not along_a_line:
            return name or type(module).__name__
    return None


def check_shares(model: nn.Module, sharding: Sharding, micro_batches: int, drop_last: bool | None) -> None:
    """An error before the first step if a rank would compute on a single sample. ``drop_last=False`` allows it."""
    if drop_last is False or (layer := sees_one_value(model)) is None:
        return
    plan = sharding.plan(0)
    smallest, in_the_last_step = smallest_share(
        plan, sharding.world_size, micro_batches, sharding.fixed_parts
    )
    if smallest > 1:
        return
    share = f"one of {sharding.world_size} processes" if sharding.world_size > 1 else "the process"
    if sharding.sampled is not None and sharding.global_batch == 0:
        hint = "let the batch_sampler leave out such batches; drop_last=False allows them"
    elif in_the_last_step:
        hint = "drop_last=True leaves out that step; or use another global_batch; drop_last=False allows it"
    else:
        hint = "use a larger global_batch or a smaller accumulate; drop_last=False allows it"
    raise RankupError(
        "batchnorm-one-sample",
        f"{layer} is a BatchNorm, and {share} would compute on one sample alone in "
        + (
            f"the last step of each epoch ({plan.total(plan.steps - 1)} samples)"
            if in_the_last_step
            else "some steps"
        )
        + ": torch cannot train it on one value per channel",
        hint=hint,
    )
