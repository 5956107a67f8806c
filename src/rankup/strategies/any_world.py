"""``exact="any-world"``: the same bits on any number of processes, with dropout and BatchNorm too.

A sum of floating-point numbers depends on its order, dropout on who draws, batch statistics on who shares a batch. So
none of these may depend on the number of processes: each global batch is cut into a fixed number of *virtual shards*,
and a rank computes its part of them one after another. A shard has its own random numbers, and its own batch
statistics, from the same beginning; gradients and statistics of all shards are gathered, and every rank adds them up
in the shards' order: gradients with its last shard's backward, so that a loop may clip them, statistics at the step.
It costs a copy of the gradients per shard, and a gather where ddp reduces while it computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from rankup.core.share import share
from rankup.errors import RankupError
from rankup.strategies.base import Refusal, Refusals, Strategy
from rankup.strategies.batch_plan import BatchPlan
from rankup.strategies.replicas import start_equal

# Elements that are gathered at once, so that all shards of a large model need not lie in memory together.
BUCKET = 8 * 1024 * 1024

Held = dict[int, torch.Tensor]  # id of a parameter → its gradient


_WHOLE_BATCH = 'leave accumulate= and exact="any-world" out for a loss over the whole global batch'
_PARTS = "no process has the outputs of the whole global batch, which is computed in virtual shards"

REFUSES: Refusals = {
    "accumulate": Refusal(
        "not-any-world",
        'accumulate= does not go with exact="any-world"',
        "more virtual shards: each is a micro-batch",
    ),
    "sync_batchnorm": Refusal(
        "not-any-world",
        'sync_batchnorm= does not go with exact="any-world"',
        "leave it out: statistics are those of a virtual shard",
    ),
    "stream": Refusal(
        "not-any-world",
        'an IterableDataset does not go with exact="any-world"',
        "a map-style Dataset",
    ),
    "lbfgs": Refusal(
        "not-with-lbfgs",
        'LBFGS cannot be used with exact="any-world"',
        "leave it out: each shard would have a loss of its own",
    ),
    "per_rank_state": Refusal(
        "not-any-world",
        'run.register({name}=…, per_rank=True) does not go with exact="any-world": a rank computes one virtual shard '
        "after another, and would carry what it keeps from one to the next",
        "leave exact= out for a loop that carries a state of each rank's own",
        exit_code=1,
    ),
    "gather": Refusal("gather-in-parts", _PARTS, _WHOLE_BATCH, exit_code=1),
    "global_loss": Refusal(
        "global-loss-in-parts",
        _PARTS + ' (exact="any-world")',
        "leave it out for a loss over the whole global batch",
        exit_code=1,
    ),
    # A rank runs the body once for each virtual shard of its own: what all ranks add up there depends on how many they
    # are, and where they have different numbers of shards, some would wait for ever.
    "sum_in_body": Refusal(
        "shard-sum",
        'with exact="any-world" a loop\'s body sees one virtual shard, and run.sum and run.mean would add up some '
        "shards of the batch",
        "run.meter.add(…) in the body, which knows; or add up on each rank, and sum after the inner loop",
        exit_code=1,
    ),
    "buffers_in_body": Refusal(
        "shard-state",
        'with exact="any-world" the buffers in a loop\'s body are those of one virtual shard',
        "take the state after the inner loop",
        exit_code=1,
    ),
}


class AnyWorld(Strategy):
    name = "any-world"
    exact = "any-world"
    by_parts = True  # each part is a virtual shard
    shared_rng = True  # between shards; within one, its own numbers
    refuses = REFUSES

    def __init__(self, virtual_shards: int, rank: int, world_size: int, *, instead_of: str = "auto") -> None:
        """``virtual_shards``: each rank computes some of them. ``instead_of``: the strategy that was chosen."""
        if virtual_shards < 1:
            raise RankupError(
                "bad-virtual-shards", f"virtual_shards must be at least 1, got {virtual_shards}"
            )
        if instead_of not in ("auto", "none", "ddp"):
            raise RankupError(
                "any-world-strategy",
                f"strategy {instead_of} sums in an order that depends on the number of processes",
                hint='strategy auto with exact="any-world"',
            )
        if world_size > virtual_shards:
            raise RankupError(
                "too-few-virtual-shards",
                f"virtual_shards={virtual_shards} leaves nothing for some of {world_size} processes",
                hint="as many as the most processes that it may ever run on; another number trains another model",
            )
        self._shards = shards = virtual_shards
        owned = [range(*share(shards, other, world_size)) for other in range(world_size)]
        self._own = owned[rank]
        self._counts = [len(each) for each in owned]
        self._models: list[nn.Module] = []
        self._may_be_unused: set[int] = set()  # ids of parameters that a shard may leave without a gradient
        # Shard → of each of its backward calls: gradients (None: nothing counted), and how many units they are of.
        self._held: dict[int, list[tuple[Held | None, float | None]]] = {}
        self._with_gradient: dict[int, set[int]] = {}  # shard → ids of the parameters that got one
        self._buffers: dict[int, list[torch.Tensor]] = {}  # shard → buffers after its forward passes
        self._begun: list[torch.Tensor] = []  # buffers when the step began
        self._shard = 0
        self._counted = True
        self._total = 0
        self._stepped = False

    def batch_plan(self, rank: int, world_size: int) -> BatchPlan:
        return BatchPlan(rank, world_size, parts=self._shards)

    def metadata(self) -> dict[str, Any]:
        return {"shards": self._shards}

    def check_metadata(self, saved: Mapping[str, Any]) -> None:
        shards = saved.get("shards", self._shards)
        if shards and shards != self._shards:
            raise RankupError(
                "other-virtual-shards",
                f"the state was taken with {shards} virtual shards, this run has {self._shards}: another model",
                hint=f"virtual_shards={shards}",
            )

    def wrap(self, model: nn.Module, device: torch.device, *, find_unused_parameters: bool) -> nn.Module:
        if len(self._counts) > 1:
            start_equal(model)
        self._models.append(model)
        if find_unused_parameters:
            self._may_be_unused.update(id(parameter) for parameter in model.parameters())
        return model

    # --------------------------------------------------------------- a step

    def begin_part(self, part: int, *, counted: bool, total: int) -> None:
        """The forward passes that follow are of shard ``part``, of a step of ``total`` samples; it has none of them if
        ``counted`` is False."""
        if part == self._own.start:
            self._held.clear()
            self._with_gradient.clear()
            self._buffers.clear()
            self._begun = [buffer.clone() for buffer in self._all_buffers()]
            self._stepped = False
        else:
            self._keep_buffers()
        self.abandon_step()
        self._shard, self._counted, self._total = part, counted, total

    def abandon_step(self) -> None:
        """Buffers become what they were when the step began: for the next shard, and where the step is left."""
        with torch.no_grad():
            for buffer, begun in zip(self._all_buffers(), self._begun, strict=True):
                buffer.copy_(begun)

    def backward_part(self, loss: torch.Tensor | None, units: float | None) -> None:
        """Backward of the shard at hand; None where it holds nothing that counts. With the rank's last shard each
        gradient becomes the sum of all shards', divided by the sum of their ``units`` per sample, where these are
        counted: a collective. There may be several in a body, of which each is summed by itself.
        """
        if self._stepped:
            raise _second_step()
        # What earlier calls brought together stays apart, and what nobody has cleared: this shard's own is summed.
        before = {id(p): p.grad for p in self._parameters() if p.grad is not None}
        for parameter in self._parameters() if before else ():
            parameter.grad = None
        held: Held | None = None
        if loss is not None:
            super().backward(loss)
            held = {id(p): p.grad for p in self._parameters() if p.grad is not None}
            self._with_gradient.setdefault(self._shard, set()).update(held)
        self._held.setdefault(self._shard, []).append((held, units))
        for parameter in self._parameters():
            parameter.grad = before.get(id(parameter))
        if self._shard == self._own[-1]:
            self._bring_together(self._calls() - 1)

    def _bring_together(self, call: int) -> None:
        """Add all shards' gradients of the step's ``call``-th backward to what there is."""
        if any(len(self._held.get(shard, ())) <= call for shard in self._own):
            raise _other_calls()
        held = {shard: self._held[shard][call][0] for shard in self._own}
        factor = self._per_unit({shard: self._held[shard][call][1] for shard in self._own})
        for bucket in buckets(p for p in self._parameters() if p.requires_grad):
            pieces = {shard: _flat(bucket, held[shard]) for shard in self._own}
            *gradients, used = _like(bucket, self._in_order(pieces))
            # Where all have one here, all have one: nobody need wait for the device.
            complete = all(found is not None and id(p) in found for found in held.values() for p in bucket)
            used_anywhere = None if complete else used.tolist()
            for index, (parameter, gradient) in enumerate(zip(bucket, gradients, strict=True)):
                if used_anywhere is not None and used_anywhere[index] == 0:
                    continue
                # In the parameter's memory order: a fused optimizer goes through both as they lie.
                summed = torch.empty_like(parameter).copy_(gradient)
                if factor is not None:
                    summed *= factor
                parameter.grad = summed if parameter.grad is None else parameter.grad + summed
        for shard in self._own:
            self._held[shard][call] = (None, None)  # its memory is free

    def _per_unit(self, units: dict[int, float | None]) -> float | None:
        """What sums of losses that were divided by the step's samples are multiplied by; None where nobody counts."""
        counted = {
            shard: torch.tensor([n], dtype=torch.float64) for shard, n in units.items() if n is not None
        }
        if not counted:
            return None
        if len(counted) < len(units):
            raise _other_calls()
        total = self._in_order(counted).item()
        if total <= 0.0:
            raise RankupError(
                "nothing-counted",
                "count= is 0 on all ranks in this step: the mean over nothing is NaN",
                hint="leave out samples whose targets are all ignored, or pass a count of at least 1",
                exit_code=1,
            )
        return self._total / total

    def reduce(self, parameters: Iterable[nn.Parameter]) -> None:
        """Gradients are together since the last shard's backward; the buffers become one. A collective."""
        if self._stepped:  # the shards computed with the weights from before the first one
            raise _second_step()
        if len({len(self._held.get(shard, ())) for shard in self._own}) > 1:
            raise _other_calls()
        self._stepped = True
        for shard, found in self._with_gradient.items():
            for parameter in parameters:
                needed = parameter.requires_grad and id(parameter) not in self._may_be_unused
                if needed and id(parameter) not in found:
                    raise RankupError(
                        "unused-parameter",
                        f"a parameter of shape {tuple(parameter.shape)} got no gradient in virtual shard {shard}",
                        hint="prepare(…, find_unused_parameters=True), if that is meant",
                        exit_code=1,
                    )
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
        start, stop = share(self._total, shard, self._shards)
        return (stop - start) / self._total

    def _all_buffers(self) -> Iterator[torch.Tensor]:
        for model in self._models:
            yield from model.buffers()

    def _keep_buffers(self) -> None:
        """Those of the shard at hand; one without samples has not moved them, and weighs nothing."""
        source = self._all_buffers() if self._counted else self._begun
        self._buffers[self._shard] = [buffer.clone() for buffer in source]

    def _parameters(self) -> Iterator[nn.Parameter]:
        for model in self._models:
            yield from model.parameters()

    def _calls(self) -> int:
        """How many backward calls the shard at hand has had."""
        return len(self._held.get(self._shard, ()))

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


def _flat(bucket: list[nn.Parameter], held: Held | None) -> torch.Tensor:
    """A shard's gradients one after another, then for each parameter whether it has one."""
    found = [None if held is None else held.get(id(parameter)) for parameter in bucket]
    pieces = [
        (torch.zeros_like(parameter) if gradient is None else gradient).reshape(-1)
        for parameter, gradient in zip(bucket, found, strict=True)
    ]
    used = [0.0 if gradient is None else 1.0 for gradient in found]
    return torch.cat([*pieces, torch.tensor(used, dtype=pieces[0].dtype, device=pieces[0].device)])


def _second_step() -> RankupError:
    return RankupError(
        "any-world-steps",
        'exact="any-world" takes one step of one optimizer per batch, and this is a second one',
        hint="leave exact= out for a loop that alternates or repeats steps",
        exit_code=1,
    )


def _other_calls() -> RankupError:
    return RankupError(
        "backward-calls-differ",
        'with exact="any-world" run.backward was called in another way in one virtual shard than in the next',
        hint="call it equally often in every iteration, always or never with count=",
        exit_code=1,
    )
