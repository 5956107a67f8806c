"""What the optimizers of a loop did: one hook on each prepared one, which counts, and nothing that grows with a model.

From it follow how many steps were taken, whether a body took none (ranks must agree, and gradients may wait for the
step of a later body), and that a save in flight has copied the moments before they change.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from rankup.runtime.context import RunContext
from rankup.strategies.clipping import local
from rankup.strategies.inner_optimizers import with_inner

_MOST_IDLE = 1000  # steps that are kept for a message
_Witness = tuple[torch.Tensor, int]  # a gradient that an optimizer has stepped with, and its version then


class OptimizerSteps:
    """Of one loop on this rank."""

    def __init__(self, run: RunContext) -> None:
        self.count = 0  # in this loop; a step within another one's is none
        self._depth = 0
        self._begun = 0  # steps that were done as the loop began
        self.idle: list[
            int
        ] = []  # steps of the loop without one of an optimizer, since they were compared last
        self.idle_sum = 0  # of all of them, in their order
        self._run = run
        self._shared = run.replicas > 1
        self._before: Callable[[], None] | None = None
        self._last = 0  # the step of the loop in which an optimizer stepped last
        # Of each optimizer, the step of the loop in which it stepped last, and a gradient that it stepped with.
        self._seen: dict[int, tuple[int, _Witness | None]] = {}
        self._never_cleared: set[int] = set()  # optimizers whose steps add to the gradients of those before

    def begin(self, stack: ExitStack, before: Callable[[], None]) -> None:
        """Until ``stack`` closes. ``before`` is called before each step."""
        self.count, self._last = 0, self._run.global_step
        self._begun = self._run.steps_reached
        self.idle, self.idle_sum = [], 0
        self._before = before
        self._depth = 0
        for optimizer in self._run.optimizers:
            for each in with_inner(optimizer):  # SAM steps the one that it holds, and never itself
                if hasattr(each, "register_step_post_hook"):
                    stack.callback(each.register_step_pre_hook(self._stepping).remove)
                    stack.callback(each.register_step_post_hook(partial(self._stepped, optimizer)).remove)
            if (first := _first(optimizer)) is not None and not hasattr(first, "to_local"):
                stack.callback(_Clearing(self, optimizer, first).close)

    def note_idle(self) -> None:
        """Steps of the loop up to the one at hand are done."""
        self._note_between(self._run.global_step + 1)
        self._last = self._run.global_step

    def _stepping(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._depth += 1
        if self._before is not None:
            self._before()
        if (
            self._shared and len(args) < 2 and kwargs.get("closure") is None
        ):  # else it computes its gradients itself
            self._run.strategy.check_reduced(optimizer)

    def _stepped(self, optimizer: Optimizer, *_: Any) -> None:
        reached = self._run.steps_reached
        self._depth -= 1
        self.count += self._depth == 0
        if reached != self._last:
            if reached != self._last + 1:
                self._note_between(reached)
            self._last = reached
        self._seen[id(optimizer)] = reached, _witness(optimizer)

    def _note_between(self, reached: int) -> None:
        for step in range(self._last + 1, reached):
            self.idle_sum = (self.idle_sum * 1_000_003 + step) % 2**32
            if len(self.idle) < _MOST_IDLE:
                self.idle.append(step)

    # ------------------------------------------------- gradients that wait for a step

    def gradients_wait(self) -> bool:
        """Whether this rank has gradients for a step that is still to come: of a window that a script accumulates by
        hand, over several bodies."""
        retired: set[int] = set()  # parameters of optimizers that were prepared later
        for optimizer in reversed(self._run.optimizers):
            if not hasattr(optimizer, "register_step_post_hook"):
                continue
            step, witness = self._seen.get(id(optimizer), (-1, None))
            own = {id(p) for group in optimizer.param_groups for p in group["params"]}
            earlier_stage, retired = step <= self._begun and own <= retired, retired | own
            if earlier_stage:
                continue
            # A step in this body has used them; one of an earlier body has used those that have not changed since.
            used = step == self._run.steps_reached or _unchanged(optimizer, witness)
            if used and id(optimizer) not in self._never_cleared:
                continue
            gradients = (
                p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None
            )
            if any(bool(_values(gradient).any()) for gradient in gradients):
                return True
        return False

    @property
    def never_cleared(self) -> bool:
        """Whether some window has no end."""
        return bool(self._never_cleared)

    def begins_after_step(self, optimizer: Optimizer) -> bool:
        """Whether the body at hand is the one after a step of ``optimizer``."""
        step, _ = self._seen.get(id(optimizer), (-1, None))
        return (
            step == self._run.global_step
        )  # steps that were reached do not count a micro-batch before the last

    def learn_never_cleared(self, optimizer: Optimizer) -> None:
        if not self._never_cleared:
            warnings.warn(
                f"gradients are never cleared: each step of {type(optimizer).__name__} adds to those of the steps "
                "before. Is opt.zero_grad() missing? run.step(opt) clears what is there at the step, and not what a "
                "later loss of the body leaves on its model (a GAN's generator loss on the discriminator)",
                stacklevel=2,
            )
        self._never_cleared.add(id(optimizer))


class _Clearing:
    """Finds out once whether gradients are cleared between two steps: it looks at each backward of the first body after
    a step, by a hook of one parameter, until the next step.

    Not at the first backward alone: if two optimizers of one model take turns, each cleared before its own backward,
    the first finds what the other's backward has left."""

    def __init__(self, steps: OptimizerSteps, optimizer: Optimizer, parameter: nn.Parameter) -> None:
        self._steps = steps
        self._optimizer = optimizer
        self._parameter = parameter
        self._found = False  # gradients that were there at a backward, and that nothing has cleared yet
        view: Any = parameter.expand_as(parameter)
        self._node = view.grad_fn.next_functions[0][0]  # where its gradient is accumulated
        self._hooks: list[Any] = [
            self._node.register_prehook(self._look),
            optimizer.register_step_pre_hook(self._stepping),
        ]

    def close(self) -> None:
        while self._hooks:
            self._hooks.pop().remove()

    def _look(self, gradients: Any) -> None:
        if self._steps.begins_after_step(self._optimizer):
            left = self._parameter.grad
            self._found = left is not None and bool(_values(left).any())
            if not self._found:
                self.close()

    def _stepping(self, *_: Any) -> None:
        if self._found:
            self._found = False
            self._hooks.pop(0).remove()  # not this one: the optimizer is going through its hooks
            self._steps.learn_never_cleared(self._optimizer)


def _first(optimizer: Optimizer) -> nn.Parameter | None:
    if not hasattr(optimizer, "register_step_post_hook"):
        return None
    parameters = (p for group in optimizer.param_groups for p in group["params"])
    return next((p for p in parameters if p.requires_grad and p.is_leaf), None)


def _witness(optimizer: Optimizer) -> _Witness | None:
    """One gradient, for all."""
    for parameter in optimizer.param_groups[0]["params"]:
        if parameter.grad is not None:
            return parameter.grad, parameter.grad._version
    return None


def _unchanged(optimizer: Optimizer, witness: _Witness | None) -> bool:
    if witness is None:
        return False
    gradient, version = witness
    return gradient._version == version and any(
        parameter.grad is gradient for parameter in optimizer.param_groups[0]["params"]
    )


def _values(gradient: torch.Tensor) -> torch.Tensor:
    """This rank's part of it; of an embedding's sparse gradient the stored values."""
    return gradient._values() if gradient.is_sparse else local(gradient)
