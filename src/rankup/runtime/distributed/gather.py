"""``run.gather``: all ranks' rows in sample order, with gradients, for losses that compare samples with each other.

Backward sums the gradients of all ranks' losses for each row. So a loss must be weighted before backward, as
``run.backward`` does: the resulting gradient belongs to several ranks' losses. A plain backward is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from rankup.errors import RankupError
from rankup.runtime.seed import derive

if TYPE_CHECKING:
    from rankup.runtime.data.feeds import RankContext
    from rankup.runtime.data.portions import Batch
    from rankup.runtime.loop.gradients import Gradients


def gather(
    here: RankContext, gradients: Gradients, batch: Batch | None, tensor: torch.Tensor, *, rows: bool
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """See ``Run.gather``; ``batch`` is the one at hand, of a training step or of an evaluation."""
    _check_place(gradients, batch)
    counted = _rows_here(batch, tensor)
    counts = _counts(here, counted, derive(0, str(tensor.dtype), *tensor.shape[1:]))
    gathered = _gathered(here, gradients, batch, tensor, counts)
    if not rows:
        return gathered
    if counted < len(tensor):  # a dummy batch, which counts nothing: any row that exists
        return gathered, torch.zeros(len(tensor), dtype=torch.int64, device=tensor.device)
    first = sum(counts[: here.rank])
    return gathered, torch.arange(first, first + counted, device=tensor.device)


def _gathered(
    here: RankContext, gradients: Gradients, batch: Batch | None, tensor: torch.Tensor, counts: list[int]
) -> torch.Tensor:
    if not (torch.is_grad_enabled() and tensor.requires_grad):
        return _all_rows(tensor, counts, here.rank)
    if batch is None:
        raise RankupError(
            "gather-outside-loop",
            "run.gather got outputs with gradients outside of a loop over run.steps or run.epochs",
            hint="with torch.no_grad(): …, if no gradient is needed",
            exit_code=1,
        )
    gradients.gathered += 1
    gathered: torch.Tensor = _Gather.apply(tensor, counts, here.rank, gradients)  # type: ignore[no-untyped-call]
    return gathered


def _check_place(gradients: Gradients, batch: Batch | None) -> None:
    if batch is not None and batch is not gradients.batch:
        raise RankupError(
            "gather-in-evaluation",
            "run.gather in the body of run.batches, where ranks may have different numbers of batches, would never end",
            hint="collect on each rank, and gather once after the loop",
            exit_code=1,
        )
    if batch is None:
        return
    gradients.strategy.check("gather")
    if gradients.accumulate > 1:
        raise RankupError(
            "gather-in-parts",
            "no process has the outputs of the whole global batch, which is computed in micro-batches",
            hint='leave accumulate= and exact="any-world" out for a loss over the whole global batch',
            exit_code=1,
        )


def _rows_here(batch: Batch | None, tensor: torch.Tensor) -> int:
    """How many of its rows count."""
    samples = None if batch is None else batch.samples
    if tensor.dim() == 0 or (samples and len(tensor) != samples):
        raise RankupError(
            "gather-rows",
            f"run.gather got a tensor of shape {tuple(tensor.shape)} for {samples or 'some'} samples",
            hint="one row per sample; gather several views of a batch one by one, and concatenate afterwards. "
            "Predictions of an evaluation within a step: write them into zeros, one row per sample of the test set, "
            "and run.sum these",
            exit_code=1,
        )
    return len(tensor) if samples is None else samples


def _counts(here: RankContext, rows: int, signature: int = 0) -> list[int]:
    """Every rank's rows; an error on all ranks if their tensors do not fit together. A collective."""
    if here.control is None:
        return [rows]
    found = here.control.gather("run.gather", (rows, signature))
    if len({other for _, other in found}) > 1:
        raise RankupError(
            "gather-shapes",
            "run.gather got tensors whose rows differ in shape or dtype between ranks",
            hint="pad them to one shape before",
            exit_code=1,
        )
    return [count for count, _ in found]


def _all_rows(tensor: torch.Tensor, counts: list[int], rank: int) -> torch.Tensor:
    if len(counts) == 1:
        return tensor
    mine = tensor.new_zeros(max(counts), *tensor.shape[1:])
    mine[: counts[rank]] = tensor.detach()[: counts[rank]]
    ranks = [torch.empty_like(mine) for _ in counts]
    dist.all_gather(ranks, mine)
    return torch.cat([rows[:count] for rows, count in zip(ranks, counts, strict=True)])


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, counts: list[int], rank: int, gradients: Gradients
    ) -> torch.Tensor:
        ctx.counts, ctx.rank, ctx.gradients, ctx.rows = counts, rank, gradients, len(tensor)
        gathered = _all_rows(tensor, counts, rank)
        return gathered.clone() if gathered is tensor else gathered

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        weight = ctx.gradients.entering
        if weight is None:
            raise RankupError(
                "plain-backward",
                "the loss uses run.gather, and its gradients were asked for without run.backward",
                hint="run.backward(loss) instead of loss.backward(): it weighs the loss of each rank",
                exit_code=1,
            )
        counts, rank = ctx.counts, ctx.rank
        # Of a loss that counts nothing no gradient is used, not even a NaN.
        gradient = gradient.contiguous().clone() if weight else torch.zeros_like(gradient).contiguous()
        if len(counts) > 1:
            dist.all_reduce(gradient)
        first = sum(counts[:rank])
        mine = gradient.new_zeros(ctx.rows, *gradient.shape[1:])
        mine[: counts[rank]] = gradient[first : first + counts[rank]]
        return mine, None, None, None
