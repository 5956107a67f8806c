"""Replicas stay one model: ranks compare what must be the same on all of them, and an error names what differs.

Gradients are compared when an optimizer uses them, at steps 1, 2, 4, 8, … of a loop; weights at the end of each epoch.
Ranks compare a checksum of a few bytes; only if it differs do they exchange which tensor it is. Every save compares all
that it writes (``snapshots/writing.py``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from rankup.errors import RankupError
from rankup.runtime.context import RunContext
from rankup.runtime.distributed.control import Control
from rankup.snapshots.checksum import pair
from rankup.strategies.inner_optimizers import with_inner

Sums = dict[str, tuple[int, int]]  # name of a tensor → its checksum
_MOST_IDLE = 1000  # steps that are kept for a message


class Replicas:
    """Of one run. With one replica nothing is compared."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._control = run.control if run.replicas > 1 else None
        self._steps = 0  # of this loop
        self._compare_at = 1
        self._taken: dict[
            str, torch.Tensor
        ] = {}  # gradients that an optimizer took in this step: their checksums
        self._optimizers: set[int] = set()
        self._took = False  # whether one of them has taken a step in the body at hand
        self._idle: list[int] = []  # steps without one since the last comparison
        self._idle_sum = 0  # of all of them, in their order

    def watch(self, stack: ExitStack) -> None:
        """Look at each step of an optimizer until ``stack`` closes: a loop begins."""
        self._steps, self._compare_at = 0, 1
        self._taken.clear()
        self._optimizers = {id(each) for optimizer in self._run.optimizers for each in with_inner(optimizer)}
        if self._control is not None:
            stack.callback(register_optimizer_step_pre_hook(self._before_step).remove)

    def step_done(self) -> None:
        """Between two steps. A collective at some of them."""
        if self._control is None:
            return
        self._note_idle()
        self._steps += 1
        if self._steps < self._compare_at:
            return
        taken, self._taken = on_cpu(self._taken), {}
        # If no rank took a step, as in a window that is accumulated by hand, the next step is compared.
        if _agree(self._control, taken, "the gradient of {name}", f"at step {self._run.global_step}"):
            self._compare_at = 2 * self._steps

    def compare_weights(self) -> None:
        """At the end of an epoch. A collective."""
        self._compare_idle()
        compare_weights(self._run, f"after step {self._run.global_step}")

    def _note_idle(self) -> None:
        took, self._took = self._took, False
        if not took:
            self._idle_sum = (self._idle_sum * 1_000_003 + self._run.global_step) % 2**32
            self._idle += [self._run.global_step] if len(self._idle) < _MOST_IDLE else []

    def _compare_idle(self) -> None:
        if self._control is None:
            return
        what = "the comparison of the steps"
        alike = same_on_all(self._control, what, {"idle": self._idle_sum})
        everyone = [] if alike else self._control.gather(what, self._idle)
        self._idle, self._idle_sum = [], 0
        for step in sorted({step for idle in everyone for step in idle}):
            without = [rank for rank, idle in enumerate(everyone) if step in idle]
            if len(without) < len(everyone):
                ranks = f"rank{'s' if without[1:] else ''} {', '.join(map(str, without))}"
                raise RankupError(
                    "skipped-steps",
                    f"{ranks} took no step of an optimizer in step {step}, and the others did: their gradients were "
                    "averaged with those that it had of another batch",
                    hint="decide on all ranks alike whether to leave out a batch, before the backward: "
                    "if run.sum(float(torch.isnan(loss))): continue",
                    exit_code=1,
                )

    def _before_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._took |= id(optimizer) in self._optimizers
        if len(args) > 1 or kwargs.get("closure") is not None:
            return  # gradients are computed in the step itself
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self._run.strategy.check_reduced(optimizer, parameters)
        if self._steps + 1 < self._compare_at:
            return
        names = {id(parameter): name for name, parameter in _named(self._run.models)}
        for parameter in parameters:
            gradient = parameter.grad
            # A parameter of no model of the run may differ between ranks: a perturbation of its samples.
            if id(parameter) in names and gradient is not None and not hasattr(gradient, "to_local"):
                dense = gradient.coalesce().values() if gradient.is_sparse else gradient
                self._taken[names[id(parameter)]] = pair(dense)


def compare_weights(run: RunContext, when: str) -> None:
    """RankupError ``replicas-differ`` if the weights of the models differ between ranks. A collective."""
    if run.control is None or run.replicas < 2:
        return
    weights = {
        name: pair(parameter) for name, parameter in _named(run.models) if not hasattr(parameter, "to_local")
    }
    _agree(run.control, on_cpu(weights), "{name}", when)


def same_on_all(control: Control, what: str, mine: Mapping[str, Any]) -> bool:
    """Whether ``mine`` is the same on all ranks. A collective; ``what`` is for messages."""
    text = repr(sorted(mine.items())).encode()
    number = int.from_bytes(hashlib.blake2b(text, digest_size=4).digest(), "big")
    (total,) = control.add(what, number)
    return total == number * control.world_size


def _agree(control: Control, mine: Sums, what: str, when: str) -> bool:
    """Whether there was anything to compare. RankupError if ranks differ."""
    if same_on_all(control, "the comparison of the replicas", mine):
        return bool(mine)
    raise _differ(control.gather("the comparison of the replicas", mine), what, when)


def _differ(everyone: list[Sums], what: str, when: str) -> RankupError:
    """The first tensor that differs, as the same error on all ranks."""
    first = everyone[0]
    for rank, sums in enumerate(everyone):
        for name in dict.fromkeys((*first, *sums)):
            if first.get(name) == sums.get(name):
                continue
            other = what.format(name=name)
            if name not in first or name not in sums:
                without = 0 if name not in first else rank
                said = f"{other} was taken by an optimizer on some ranks, and not on rank {without}, {when}"
            else:
                said = f"{other} is not the same on rank 0 and rank {rank} {when}: each would train a model of its own"
            return RankupError(
                "replicas-differ",
                said,
                hint="call the model itself for every loss, make data with the same seed on all ranks, "
                "and change weights or gradients by hand on all ranks alike; a forward pass that changes weights by "
                "its own samples (nn.Embedding(max_norm=…), ActNorm) changes others on each rank",
                exit_code=1,
            )
    raise AssertionError("ranks differ in nothing")


def _named(models: list[nn.Module]) -> list[tuple[str, nn.Parameter]]:
    """All parameters; with the number of their model where there are several."""
    return [
        (f"{name} of model {index + 1}" if len(models) > 1 else name, parameter)
        for index, model in enumerate(models)
        for name, parameter in model.named_parameters()
    ]


def on_cpu(sums: dict[str, torch.Tensor]) -> Sums:
    """In one transfer from each device."""
    found: Sums = {}
    devices = {value.device for value in sums.values()}
    for device in devices:
        names = [name for name, value in sums.items() if value.device == device]
        rows = torch.stack([sums[name] for name in names]).tolist()
        found |= {name: (a, b) for name, (a, b) in zip(names, rows, strict=True)}
    return {name: found[name] for name in sums}
