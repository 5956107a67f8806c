"""Replicas stay one model: ranks compare what must be the same on all of them, and an error names what differs.

Gradients are compared when an optimizer uses them, at steps 1, 2, 4, 8, … of a loop; weights at the end of each epoch.
Ranks compare a checksum of a few bytes; only if it differs do they exchange which tensor it is. Every save compares all
that it writes (``snapshots/alike.py``).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from rankup.errors import RankupError
from rankup.runtime.context import RunContext
from rankup.runtime.distributed.control import Control, same_on_all
from rankup.runtime.loop.optimizer_steps import OptimizerSteps
from rankup.snapshots.tensor_checksum import pair
from rankup.strategies.inner_optimizers import with_inner

Sums = dict[str, tuple[int, int]]  # name of a tensor → its checksum


class Replicas:
    """Of one run. With one replica nothing is compared."""

    def __init__(self, run: RunContext, steps: OptimizerSteps) -> None:
        self._run = run
        self._control = run.control if run.replicas > 1 else None
        self._steps = steps
        self._hooks: list[Any] = []  # while the gradients of a step are to be compared
        # Gradients that an optimizer took in this step: their checksums.
        self._taken: dict[str, torch.Tensor] = {}

    def look(self) -> None:
        """Compare the gradients that optimizers take in the next step."""
        self._taken.clear()
        if self._control is not None and not self._hooks:
            self._hooks = [
                each.register_step_pre_hook(self._before_step)
                for optimizer in self._run.optimizers
                for each in with_inner(optimizer)
                if hasattr(each, "register_step_pre_hook")
            ]

    def compare_gradients(self) -> bool:
        """After that step. Whether there was anything to compare: in a window that is accumulated by hand, a later step
        has it. A collective."""
        if self._control is None:
            return True
        taken, self._taken = on_cpu(self._taken), {}
        found = _agree(self._control, taken, "the gradient of {name}", f"at step {self._run.global_step}")
        if found:
            self.close()
        return found

    def close(self) -> None:
        while self._hooks:
            self._hooks.pop().remove()

    def compare_weights(self) -> None:
        """At the end of an epoch. A collective."""
        self._compare_idle()
        compare_weights(self._run, f"after step {self._run.global_step}")

    def _compare_idle(self) -> None:
        if self._control is None:
            return
        what, steps = "the comparison of the steps", self._steps
        steps.note_idle()
        alike = same_on_all(self._control, what, {"idle": steps.idle_sum})
        everyone = [] if alike else self._control.gather(what, steps.idle)
        steps.idle, steps.idle_sum = [], 0
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
        if len(args) > 1 or kwargs.get("closure") is not None:
            return  # gradients are computed in the step itself
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
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
