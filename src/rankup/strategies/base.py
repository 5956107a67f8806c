"""What every strategy answers; the answers here are those of one process.

A strategy knows tensors and process groups, never data sets or files. Each differs from one process in a few of these
members, so each file says only what it does differently.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import torch
from torch import nn
from torch.optim import Optimizer

from rankup.strategies.clipping import clip_gradients


class Strategy:
    """One step: ``set_gradient_scale``, forward, ``backward``; all micro-batches but the last inside ``no_sync``."""

    name: ClassVar[str]
    #: The rank that answers for a batch which all ranks work on together; None where each has a share of its own.
    speaker: ClassVar[int | None] = None
    #: Whether all ranks must draw the same random numbers: they compute parts of the same activations.
    shared_rng: ClassVar[bool] = False
    #: Whether forward and backward are collectives, so that every rank must enter them equally often.
    lockstep: ClassVar[bool] = False
    #: Whether ``strategies/state.py`` knows its state; without, a run neither saves nor resumes.
    snapshots: ClassVar[bool] = True
    #: Parts that each global batch is cut into, whatever the number of ranks; 0: one per rank (``any_world.py``).
    shards: int = 0

    def reporting_rank(self, rank: int, world_size: int) -> bool:
        """Whether what ``rank`` computes is to be counted: a batch shared by all ranks counts once."""
        return self.speaker is None or rank == self.speaker % world_size

    def part(self, model: nn.Module) -> nn.Module:
        """What of ``model`` this rank holds, before anything is moved to the device: all of it, or a stage."""
        return model

    def wrap(self, model: nn.Module, device: torch.device, *, find_unused_parameters: bool) -> nn.Module:
        """The model to call in the training loop. ``model`` is what ``part`` gave, on ``device`` already."""
        return model

    def finish(self, model: nn.Module, optimizer: Optimizer, clip: float | None) -> tuple[nn.Module, Any]:
        """Last word on the wrapped model and its optimizer, built after ``wrap``."""
        return model, optimizer

    def set_gradient_scale(self, weight: float) -> None:
        """How much this rank's gradient counts in the mean over ranks, from the next backward on.

        ``n · W / N`` for ``n`` local samples of a global batch of ``N`` on ``W`` ranks makes local means into the
        global mean; 1 where all hold equally many; 0 makes sure that nothing of this rank's gradient is used, not
        even a NaN.
        """

    def no_sync(self) -> AbstractContextManager[None]:
        """While inside, gradients gather on their rank: for all micro-batches of a window but the last."""
        return nullcontext()

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()  # type: ignore[no-untyped-call]

    def reduce(self, parameters: Iterable[nn.Parameter]) -> None:
        """Before clipping and the step: gradients of all ranks, where backward has not brought them together."""

    def check_reduced(self, optimizer: Optimizer, parameters: Iterable[nn.Parameter]) -> None:
        """Before ``optimizer``, which trains ``parameters``, steps: RankupError ``gradients-not-reduced`` where one of
        its gradients is this rank's alone, as far as that can be told from here."""

    def agree(self, overflowed: torch.Tensor) -> None:
        """Make ``overflowed``, a float scalar that is 1 where this rank's gradients are not finite, the ranks' maximum.

        Nothing to do where all ranks hold the same gradients.
        """

    def clip(self, parameters: Iterable[nn.Parameter], max_norm: float) -> torch.Tensor:
        """Scale the gradients down to a norm of ``max_norm``; the norm before, a scalar tensor."""
        return clip_gradients(parameters, max_norm)

    def step(self, optimizer: Optimizer) -> None:
        optimizer.step()

    def tensors(self, model: nn.Module) -> dict[str, torch.Tensor]:
        """Every parameter and saved buffer that this rank holds, live, by its name in the user's whole model."""
        return model.state_dict(keep_vars=True)

    def layout(self) -> Any:
        """How gradients are laid out where they are summed, if a sum's last bit depends on it: plain values, of which
        those of rank 0 count. None: there is nothing to restore."""
        return None

    def restore_layout(self, saved: Any) -> None:
        """Sum as the process did whose ``layout`` was ``saved``, on as many ranks. A collective."""
