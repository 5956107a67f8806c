"""``exact="any-world"``: the same bits on any number of processes, with dropout and BatchNorm too.

A sum of floating-point numbers depends on its order, dropout on who draws, batch statistics on who shares a batch. So
none of these may depend on the number of processes: each global batch is cut into a fixed number of *virtual shards*,
and a rank computes its part of them one after another. A shard has its own random numbers, and its own batch
statistics, from the same beginning; gradients and statistics of all shards are gathered, and every rank adds them up
in the shards' order. It costs a copy of the gradients per shard, and a gather where ddp reduces while it computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from rankup.core.share import share
from rankup.errors import RankupError
from rankup.strategies.base import Strategy
from rankup.strategies.replicas import start_equal

# Elements that are gathered at once, so that all shards of a large model need not lie in memory together.
BUCKET = 8 * 1024 * 1024


class AnyWorld(Strategy):
    name = "any-world"
    draws_alike = True  # between shards; within one, its own numbers

    def __init__(self, shards: int, rank: int, world_size: int) -> None:
        """``shards``: virtual ones, of which each rank computes some: ``world_size`` or more."""
        self.shards = shards
        owned = [range(*share(shards, other, world_size)) for other in range(world_size)]
        self._own = owned[rank]
        self._counts = [len(each) for each in owned]
        self._models: list[nn.Module] = []
        self._may_be_unused: set[int] = set()  # ids of parameters that a shard may leave without a gradient
        self._gradients: dict[int, dict[int, torch.Tensor]] = {}  # shard → id of a parameter → its gradient
        self._buffers: dict[int, list[torch.Tensor]] = {}  # shard → buffers after its forward passes
        self._begun: list[torch.Tensor] = []  # buffers when the step began
        self._shard = 0
        self._counted = True
        self._total = 0
        self._reduced = False

    def wrap(self, model: nn.Module, device: torch.device, *, find_unused_parameters: bool) -> nn.Module:
        if len(self._counts) > 1:
            start_equal(model)
        self._models.append(model)
        if find_unused_parameters:
            self._may_be_unused.update(id(parameter) for parameter in model.parameters())
        return model

    # --------------------------------------------------------------- a step

    def begin_shard(self, shard: int, *, counted: bool, total: int) -> None:
        """The forward passes that follow are of ``shard``, of a step of ``total`` samples; ``counted`` is False where
        it holds none of them."""
        if shard == self._own.start:
            self._gradients.clear()
            self._buffers.clear()
            self._begun = [buffer.clone() for buffer in self._all_buffers()]
            self._reduced = False
        else:
            self._keep_buffers()
        self.back_to_begin()
        self._shard, self._counted, self._total = shard, counted, total

    def back_to_begin(self) -> None:
        """Buffers become what they were when the step began: for the next shard, and where the step is left."""
        with torch.no_grad():
            for buffer, begun in zip(self._all_buffers(), self._begun, strict=True):
                buffer.copy_(begun)

    def backward(self, loss: torch.Tensor) -> None:
        super().backward(loss)
        held = self._gradients.setdefault(self._shard, {})
        for model in self._models:
            for parameter in model.parameters():
                if parameter.grad is None:
                    continue
                before = held.get(id(parameter))
                held[id(parameter)] = parameter.grad if before is None else before + parameter.grad
                parameter.grad = None

    def reduce(self, parameters: Iterable[nn.Parameter]) -> None:
        """Each gradient becomes the sum of all shards', and the buffers one. A collective."""
        if self._reduced:  # the shards computed with the weights from before the first one
            raise RankupError(
                "any-world-steps",
                'exact="any-world" takes one step of one optimizer per batch, and this is a second one',
                hint="leave exact= out for a loop that alternates or repeats steps",
                exit_code=1,
            )
        self._reduced = True
        for bucket in buckets(parameter for parameter in parameters if parameter.requires_grad):
            pieces = {shard: self._flat_gradients(shard, bucket) for shard in self._own}
            *gradients, used = _like(bucket, self._in_order(pieces))
            used_anywhere = used.tolist() if any(id(p) in self._may_be_unused for p in bucket) else None
            for index, (parameter, gradient) in enumerate(zip(bucket, gradients, strict=True)):
                unused = used_anywhere is not None and used_anywhere[index] == 0
                # In the parameter's memory order: a fused optimizer goes through both as they lie.
                parameter.grad = None if unused else torch.empty_like(parameter).copy_(gradient)
        self._unite_buffers()

    def _unite_buffers(self) -> None:
        """Batch statistics become the mean over the samples of the step; other buffers those of the first shard."""
        self._keep_buffers()
        buffers = list(self._all_buffers())
        if not buffers:
            return
        averaged = {id(buffer) for model in self._models for buffer in batch_statistics(model)}
        with torch.no_grad():
            for index, buffer in enumerate(buffers):
                pieces = {shard: held[index] for shard, held in self._buffers.items()}
                if id(buffer) in averaged:
                    weighed = {shard: piece * self._weight(shard) for shard, piece in pieces.items()}
                    buffer.copy_(self._in_order(weighed))
                else:
                    buffer.copy_(next(self._gathered(pieces)))
        self._buffers.clear()

    # --------------------------------------------------------------- inside

    def _weight(self, shard: int) -> float:
        """What part of the step's samples it holds."""
        start, stop = share(self._total, shard, self.shards)
        return (stop - start) / self._total

    def _all_buffers(self) -> Iterator[torch.Tensor]:
        for model in self._models:
            yield from model.buffers()

    def _keep_buffers(self) -> None:
        """Those of the shard at hand; one without samples has not moved them, and weighs nothing."""
        source = self._all_buffers() if self._counted else self._begun
        self._buffers[self._shard] = [buffer.clone() for buffer in source]

    def _flat_gradients(self, shard: int, bucket: list[nn.Parameter]) -> torch.Tensor:
        """One after another, then for each parameter whether it has one."""
        held = self._gradients.get(shard)  # None: no samples, or no backward
        found = [None if held is None else held.get(id(parameter)) for parameter in bucket]
        for parameter, gradient in zip(bucket, found, strict=True):
            if held is not None and gradient is None and id(parameter) not in self._may_be_unused:
                raise RankupError(
                    "unused-parameter",
                    f"a parameter of shape {tuple(parameter.shape)} got no gradient in virtual shard {shard}",
                    hint="prepare(…, find_unused_parameters=True), if that is meant",
                    exit_code=1,
                )
        pieces = [
            (torch.zeros_like(parameter) if gradient is None else gradient).reshape(-1)
            for parameter, gradient in zip(bucket, found, strict=True)
        ]
        used = [0.0 if gradient is None else 1.0 for gradient in found]
        return torch.cat([*pieces, torch.tensor(used, dtype=pieces[0].dtype, device=pieces[0].device)])

    def _in_order(self, pieces: dict[int, torch.Tensor]) -> torch.Tensor:
        """The sum of all shards' tensors, the first one first: on every rank the same bits."""
        gathered = self._gathered(pieces)
        total = next(gathered).clone()
        for piece in gathered:
            total += piece
        return total

    def _gathered(self, pieces: dict[int, torch.Tensor]) -> Iterator[torch.Tensor]:
        """All shards' tensors in order, from ``pieces``, which are this rank's by shard."""
        if len(self._counts) == 1:
            yield from (pieces[shard] for shard in self._own)
            return
        one = next(iter(pieces.values()))
        # Ranks may have one shard more than others: all send equally much.
        mine = one.new_zeros(max(self._counts), *one.shape)
        for row, shard in enumerate(self._own):
            mine[row] = pieces[shard]
        ranks = [torch.empty_like(mine) for _ in self._counts]
        dist.all_gather(ranks, mine)
        for rows, count in zip(ranks, self._counts, strict=True):
            yield from rows[:count]


def batch_statistics(model: nn.Module) -> Iterator[torch.Tensor]:
    """Running means and variances of every BatchNorm."""
    for module in model.modules():
        if isinstance(module, _NormBase):
            yield from (held for held in (module.running_mean, module.running_var) if held is not None)


def buckets(parameters: Iterable[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """In order, of one dtype and device each, and of ``BUCKET`` elements or one parameter."""
    bucket: list[nn.Parameter] = []
    for parameter in parameters:
        alike = not bucket or (parameter.dtype, parameter.device) == (bucket[0].dtype, bucket[0].device)
        if bucket and (not alike or sum(p.numel() for p in bucket) + parameter.numel() > BUCKET):
            yield bucket
            bucket = []
        bucket.append(parameter)
    if bucket:
        yield bucket


def _like(bucket: list[nn.Parameter], flat: torch.Tensor) -> list[torch.Tensor]:
    """``flat`` in pieces of the parameters' shapes; what is left over comes last."""
    sizes = [parameter.numel() for parameter in bucket]
    *pieces, rest = torch.split(flat, [*sizes, len(flat) - sum(sizes)])
    return [piece.view(parameter.shape) for piece, parameter in zip(pieces, bucket, strict=True)] + [rest]
