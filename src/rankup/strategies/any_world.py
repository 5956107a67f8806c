"""``exact="any-world"``: the same bits on any number of processes, with dropout and BatchNorm too.

A sum of floating-point numbers depends on its order, dropout on the rank that draws, batch statistics on the samples of
a rank's batch. None of these may depend on the number of processes. So each global batch is cut into a fixed number of
*virtual shards*, and a rank computes its part of them one after another. Each shard has its own random numbers, and
begins with the same buffers. Gradients and statistics of all shards are gathered, and every rank sums them in the
shards' order: gradients with the backward of its last shard, so that a loop may clip them, statistics at the step. This
costs a copy of the gradients per shard, and a gather, while ddp reduces during the backward.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from rankup.errors import RankupError
from rankup.strategies.base import Refusal, Refusals, Strategy
from rankup.strategies.batch_plan import BatchPlan
from rankup.strategies.gradient_hooks import GradientHooks
from rankup.strategies.ordered_sum import Gradients, OrderedSum, buckets, flatten, split_like
from rankup.strategies.replicas import start_equal
from rankup.strategies.shard_buffers import ShardBuffers
from rankup.strategies.weights import nothing_counted

_WHOLE_BATCH = 'leave accumulate= and exact="any-world" out for a loss over the whole global batch'
_PARTS = "no process has the outputs of the whole global batch, which is computed in virtual shards"

REFUSES: Refusals = {
    "accumulate": Refusal(
        "not-any-world",
        'accumulate= cannot be used with exact="any-world"',
        "leave accumulate= out, and use more virtual shards: each is a micro-batch",
    ),
    "sync_batchnorm": Refusal(
        "not-any-world",
        'sync_batchnorm= cannot be used with exact="any-world"',
        "leave it out: statistics are those of a virtual shard",
    ),
    "stream": Refusal(
        "not-any-world",
        'an IterableDataset cannot be used with exact="any-world"',
        "a map-style Dataset",
    ),
    "lbfgs": Refusal(
        "not-with-lbfgs",
        'LBFGS cannot be used with exact="any-world"',
        "leave it out: each shard would have a loss of its own",
    ),
    "per_rank_state": Refusal(
        "not-any-world",
        'run.register({name}=…, per_rank=True) cannot be used with exact="any-world": a rank computes one shard '
        "after another, and would carry this state from one to the next",
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
    # A rank runs the body once for each of its virtual shards: a sum over ranks would depend on their number, and if
    # ranks have different numbers of shards, some would wait for ever.
    "sum_in_body": Refusal(
        "shard-sum",
        'with exact="any-world" a loop\'s body sees one virtual shard, and run.sum, run.mean and means() would add up '
        "some shards of the batch",
        "only run.meter.add(…) in the body; evaluate, and call means(), run.sum and run.mean, after the inner loop",
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
        self._shards = virtual_shards
        self._models: list[nn.Module] = []
        self._sum = OrderedSum(virtual_shards, rank, world_size)
        self._own = self._sum.own
        self._statistics = ShardBuffers(self._sum, self._models)
        self._may_be_unused: set[int] = set()  # ids of parameters that a shard may leave without a gradient
        # Shard → of each of its backward calls: gradients (None: nothing counted), and how many units they are of.
        self._held: dict[int, list[tuple[Gradients | None, float | None]]] = {}
        self._with_gradient: dict[int, set[int]] = {}  # shard → ids of the parameters that got one
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
        if self._sum.ranks > 1:
            start_equal(model)
        self._models.append(model)
        model.register_forward_pre_hook(GradientHooks(model))
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
            self._statistics.begin()
            self._stepped = False
        else:
            self._statistics.note(self._shard, counted=self._counted)
        self.abandon_step()
        self._shard, self._counted, self._total = part, counted, total

    def abandon_step(self) -> None:
        """Restore the buffers from the beginning of the step: for the next shard, and if the step is left."""
        self._statistics.reset()

    def backward_part(self, loss: torch.Tensor | None, units: float | None) -> None:
        """Backward of the current shard; None if nothing in it counts. With the rank's last shard each gradient becomes
        the sum over all shards, divided by the sum of their ``units`` per sample, if these are counted: a collective.
        A body may call it several times; each call is summed by itself.
        """
        if self._stepped:
            raise _second_step()
        # Only this shard's gradient is summed: sums of earlier calls, and what was not cleared, are put aside.
        before = {id(p): p.grad for p in self._parameters() if p.grad is not None}
        for parameter in self._parameters() if before else ():
            parameter.grad = None
        held: Gradients | None = None
        if loss is not None:
            super().backward(loss)
            held = {id(p): p.grad for p in self._parameters() if p.grad is not None}
            if any(gradient is not None and gradient.is_sparse for gradient in held.values()):
                raise _sparse()
            self._with_gradient.setdefault(self._shard, set()).update(held)
        self._held.setdefault(self._shard, []).append((held, units))
        for parameter in self._parameters():
            parameter.grad = before.get(id(parameter))
        if self._shard == self._own[-1]:
            self._bring_together(len(self._held[self._shard]) - 1)

    def _bring_together(self, call: int) -> None:
        """Add all shards' gradients of the step's ``call``-th backward to what there is."""
        if any(len(self._held.get(shard, ())) <= call for shard in self._own):
            raise _other_calls()
        held = {shard: self._held[shard][call][0] for shard in self._own}
        factor = self._per_unit({shard: self._held[shard][call][1] for shard in self._own})
        for bucket in buckets(p for p in self._parameters() if p.requires_grad):
            pieces = {shard: flatten(bucket, held[shard]) for shard in self._own}
            *gradients, used = split_like(bucket, self._sum.of(pieces))
            # If all parameters have one in all shards of this rank, no wait for the device is needed.
            complete = all(found is not None and id(p) in found for found in held.values() for p in bucket)
            used_anywhere = None if complete else used.tolist()
            for index, (parameter, gradient) in enumerate(zip(bucket, gradients, strict=True)):
                if used_anywhere is not None and used_anywhere[index] == 0:
                    continue
                # In the parameter's memory format: a fused optimizer reads both in memory order.
                summed = torch.empty_like(parameter).copy_(gradient)
                if factor is not None:
                    summed *= factor
                parameter.grad = summed if parameter.grad is None else parameter.grad + summed
        for shard in self._own:
            self._held[shard][call] = (None, None)  # its memory is free

    def _per_unit(self, units: dict[int, float | None]) -> float | None:
        """The factor for sums of losses that were divided by the step's samples; None if no units are counted."""
        counted = {
            shard: torch.tensor([n], dtype=torch.float64) for shard, n in units.items() if n is not None
        }
        if not counted:
            return None
        if len(counted) < len(units):
            raise _other_calls()
        total = self._sum.of(counted).item()
        if total <= 0.0:
            raise nothing_counted()
        return self._total / total

    def reduce(self, optimizer: Optimizer) -> None:
        """Gradients were summed at the last shard's backward; now the buffers are united. A collective."""
        if self._stepped:  # the shards computed with the weights from before the first one
            raise _second_step()
        if len({len(self._held.get(shard, ())) for shard in self._own}) > 1:
            raise _other_calls()
        self._stepped = True
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
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
        self._statistics.note(self._shard, counted=self._counted)
        self._statistics.unite(self._total)

    def _parameters(self) -> Iterator[nn.Parameter]:
        for model in self._models:
            yield from model.parameters()


def _second_step() -> RankupError:
    return RankupError(
        "any-world-steps",
        'exact="any-world" takes one step of one optimizer per batch, and this is a second one',
        hint="leave exact= out for a loop that alternates or repeats steps",
        exit_code=1,
    )


def _sparse() -> RankupError:
    return RankupError(
        "not-any-world",
        'sparse gradients cannot be used with exact="any-world", which sums those of all shards in their order',
        hint="nn.Embedding(…, sparse=False), and an optimizer for dense gradients; or leave exact= out",
        exit_code=1,
    )


def _other_calls() -> RankupError:
    return RankupError(
        "backward-calls-differ",
        'with exact="any-world" run.backward was called in another way in one virtual shard than in the next',
        hint="call it equally often in every iteration, always or never with count=",
        exit_code=1,
    )
