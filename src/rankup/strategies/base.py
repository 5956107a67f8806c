"""The protocol between a run and its strategy; the answers here are those of one process.

A strategy knows tensors and process groups, never data sets or files. Each strategy overrides only a few of these
members. The runtime uses nothing else of a strategy: not its class, and its name only for display.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

from rankup.errors import RankupError
from rankup.strategies.batch_plan import BatchPlan, equal_batches
from rankup.strategies.clipping import clip_gradients

#: What a strategy may refuse. The runtime checks each of them when a script uses it.
Feature = Literal[
    "accumulate",  # several micro-batches per step
    "clip",  # run.prepare(…, clip=)
    "fp16",  # losses that are scaled, steps that may be left out
    "sync_batchnorm",
    "stream",  # an IterableDataset
    "several_models",  # run.prepare([a, b], …)
    "shared_parameters",  # two of several models hold the same parameter
    "lbfgs",  # an optimizer that calls a closure several times per step
    "per_rank_state",  # run.register(…, per_rank=True)
    "gather",  # run.gather in a loop's body
    "global_loss",  # run.backward(…, reduction="global")
    "sum_in_body",  # run.sum and run.mean in a loop's body
    "buffers_in_body",  # the model's buffers, as a state, in a loop's body
]


class Refusal(NamedTuple):
    """The text of a RankupError. ``message`` may contain ``{strategy}`` and the keywords of ``Strategy.check``."""

    code: str
    message: str
    hint: str
    exit_code: int = 2


Refusals = Mapping[Feature, Refusal]

NO_SYNC_BATCHNORM = Refusal(
    "no-sync-batchnorm",
    "SyncBatchNorm cannot be used with strategy {strategy}",
    "leave it out, or use ddp or fsdp with whole batches",
)
NO_LBFGS = Refusal(
    "not-with-lbfgs",
    "LBFGS cannot be used with strategy {strategy}",
    "strategy ddp: LBFGS makes one vector of all parameters",
)
ONE_MODEL = Refusal(
    "several-models",
    "strategy {strategy} wraps one model with its optimizer, and got {count}",
    "strategy ddp or fsdp; or one nn.Module that holds them",
)
NO_SHARED_PARAMETERS = Refusal(
    "shared-between-models",
    "two of the models share a parameter, whose gradient each of them would average by itself",
    "put them into one nn.Module with a forward of its own, and prepare that",
)


class Strategy:
    """One step: ``set_gradient_scale``, forward, ``backward``; all micro-batches but the last inside ``no_sync``.

    With ``by_parts`` a step is instead, for each part of this rank: ``begin_part``, forward, ``backward_part``.
    """

    name: ClassVar[str]
    #: Whether it never trains on several processes.
    one_process: ClassVar[bool] = False
    #: The degree of exactness that it gives (``EXACT`` in ``__init__.py``).
    exact: ClassVar[str] = "same-world"
    #: Whether a loop's body sees one part of the batch at a time, as ``batch_plan`` cuts it. Each part begins with the
    #: same buffers and random numbers of its own, whichever rank computes it.
    by_parts: ClassVar[bool] = False
    #: Whether forward and backward are one call, ``forward_backward``.
    pipelined: ClassVar[bool] = False
    #: Whether all ranks must draw the same random numbers: they compute parts of the same activations.
    shared_rng: ClassVar[bool] = False
    #: Whether forward and backward are collectives, so that every rank must enter them equally often.
    lockstep: ClassVar[bool] = False
    #: Whether each rank holds a part of every parameter; else only some, under names that other ranks do not have.
    every_name: ClassVar[bool] = True
    #: Whether ``strategies/state.py`` supports its state; without, a run neither saves nor resumes.
    snapshots: ClassVar[bool] = True
    #: What cannot be used with it, and the error for it.
    refuses: ClassVar[Refusals] = {}

    # ------------------------------------------------------------ before the first step

    def check(self, feature: Feature, **what: object) -> None:
        """RankupError if ``feature`` cannot be used with this strategy; ``what`` completes its message."""
        refusal = self.refuses.get(feature)
        if refusal is not None:
            raise RankupError(
                refusal.code,
                refusal.message.format(strategy=self.name, **what),
                hint=refusal.hint,
                exit_code=refusal.exit_code,
            )

    def batch_plan(self, rank: int, world_size: int) -> BatchPlan:
        """How global batches are divided over ranks: each rank has a share of its own."""
        return BatchPlan(rank, world_size)

    def part(self, model: nn.Module) -> nn.Module:
        """The part of ``model`` that this rank holds, before it is moved to the device: all of it, or a stage."""
        return model

    def wrap(self, model: nn.Module, device: torch.device, *, find_unused_parameters: bool) -> nn.Module:
        """The model to call in the training loop. ``model`` is what ``part`` gave, on ``device`` already."""
        return model

    def setup_optimizer(
        self, model: nn.Module, optimizer: Optimizer, clip: float | None
    ) -> tuple[nn.Module, Any]:
        """The model and its optimizer, built after ``wrap``, as the loop gets them."""
        return model, optimizer

    # ------------------------------------------------------------------------- batches

    def begin_part(self, part: int, *, counted: bool, total: int) -> None:
        """With ``by_parts``: the forward passes that follow are of ``part``, of a step of ``total`` samples; it holds
        none of them if ``counted`` is False."""

    def abandon_step(self) -> None:
        """The loop was left between two pieces of a step."""

    def no_sync(self) -> AbstractContextManager[None]:
        """While inside, gradients accumulate on their rank: for all micro-batches of a step except the last."""
        return nullcontext()

    def evaluation_batch(self, wanted: int, samples: Callable[[], int | None], plan: BatchPlan) -> int:
        """The global batch of an evaluation: ``wanted``, or a few samples more if required.

        With ``lockstep`` all ranks get equally many batches; ``samples()`` is the length of the data set, None if that
        is unknown. RankupError if no batch does that.
        """
        size = max(wanted, plan.smallest_batch)
        if self.lockstep and plan.replicas > 1:
            return equal_batches(self.name, samples(), size, plan.replicas)
        return size

    # ------------------------------------------------------------------------- a step

    def set_gradient_scale(self, weight: float) -> None:
        """How much this rank's gradient counts in the mean over ranks, from the next backward on.

        ``n · W / N`` for ``n`` local samples of a global batch of ``N`` on ``W`` ranks turns local means into the
        global mean; it is 1 if all ranks have equally many. With 0 nothing of this rank's gradient is used, not even a
        NaN."""

    def expect_dummies(self, expected: bool) -> None:
        """Whether some rank's gradients may count nothing in this step. All ranks are told the same."""

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()  # type: ignore[no-untyped-call]

    def backward_part(self, loss: torch.Tensor | None, units: float | None) -> None:
        """With ``by_parts``: backward of the part at hand; None if it holds nothing that counts. ``loss`` was divided
        by the samples of the step, or by nothing; ``units`` is what to divide the sum of all parts by instead."""
        raise NotImplementedError

    def forward_backward(
        self, model: nn.Module, x: Any, target: Any, scale: float
    ) -> tuple[torch.Tensor, torch.Tensor] | tuple[None, None]:
        """With ``pipelined``: gradients of ``scale`` times the mean loss; (loss, output) on the rank that has them."""
        raise NotImplementedError

    def reduce(self, optimizer: Optimizer) -> None:
        """Before clipping and a step of ``optimizer``: reduce gradients over ranks, if backward has not done so."""

    def check_reduced(self, optimizer: Optimizer) -> None:
        """Before a step of ``optimizer``: RankupError ``gradients-not-reduced`` if one of its gradients was not reduced
        over ranks, as far as that can be detected."""

    def agree(self, overflowed: torch.Tensor) -> None:
        """Set ``overflowed`` (a float scalar, 1 if this rank's gradients are not finite) to its maximum over ranks.

        Not needed if all ranks hold the same gradients.
        """

    def clip(self, parameters: Iterable[nn.Parameter], max_norm: float) -> torch.Tensor:
        """Scale the gradients down to a norm of ``max_norm``; the norm before, a scalar tensor."""
        return clip_gradients(parameters, max_norm)

    def step(self, optimizer: Optimizer) -> None:
        optimizer.step()

    # ---------------------------------------------------------------------- the state

    def tensors(self, model: nn.Module) -> dict[str, torch.Tensor]:
        """Every parameter and saved buffer that this rank holds, live, by its name in the user's whole model."""
        return model.state_dict(keep_vars=True)

    def buffers(self, model: nn.Module) -> dict[str, torch.Tensor]:
        """Every buffer that this rank holds, also those in no ``state_dict``, in the same form. A buffer with several
        names has all of them."""
        return dict(model.named_buffers(remove_duplicate=False))

    def layout(self) -> Any:
        """The layout of gradients in reductions, if the last bit of a sum depends on it: plain values; those of rank 0
        count. None: there is nothing to restore."""
        return None

    def restore_layout(self, saved: Any) -> None:
        """Reduce with the layout ``saved``, on as many ranks as it was saved by. A collective."""

    def metadata(self) -> dict[str, Any]:
        """What a snapshot notes about the strategy, besides its name: plain values."""
        return {}

    def check_metadata(self, saved: Mapping[str, Any]) -> None:
        """RankupError if the training cannot resume from a snapshot with the metadata ``saved``, which may be of
        another strategy."""


TORCH = tuple(map(int, torch.__version__.split(".")[:2]))


def require_torch(version: tuple[int, int], what: str, why: str) -> None:
    """RankupError if torch is older than ``version``, which ``what`` requires."""
    if version > TORCH:
        raise RankupError(
            "torch-too-old",
            f"{what} needs torch {'.'.join(map(str, version))} or later: {why} in {torch.__version__}",
            hint="a newer torch; ddp has no such limit",
        )
