"""Gradients that wait for a step: those of a window that is accumulated by hand, over several batches of the loop.

Usually a snapshot holds no gradients, since a training step begins without any. If a loop calls ``backward`` in several
bodies and ``opt.step()`` in one of them, gradients are part of its state: a save waits for the end of the window, and a
save that cannot wait includes them.
"""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from rankup.runtime.context import RunContext
from rankup.strategies.clipping import local


class PendingGradients:
    """Of one run. ``any_rank``: whether there are any; ``state`` and ``load`` save and restore them."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._control = run.control
        self._stepped: dict[int, int] = {}  # of each optimizer, the step of the loop in which it stepped last
        self._carried: dict[
            int, bool
        ] = {}  # whether its next backward adds to gradients that it has stepped with
        self._begun = 0  # steps that were done as the loop began

    def watch(self, stack: ExitStack) -> None:
        """Note each step of the run's optimizers until ``stack`` closes."""
        self._begun = self._run.steps_reached
        for optimizer in self._run.optimizers:
            if not hasattr(optimizer, "register_step_post_hook"):
                continue
            handle = optimizer.register_step_post_hook(self._note_step)
            stack.callback(handle.remove)
            if (first := _first(optimizer)) is not None and not hasattr(first, "to_local"):
                stack.enter_context(_Witness(self, optimizer, first))

    def any_rank(self) -> bool:
        """Whether some rank has gradients that wait. A collective."""
        mine = self.any_here()
        return mine if self._control is None else self._control.any("the gradients before a save", mine)

    def state(self) -> list[dict[str, torch.Tensor]]:
        """This rank's gradients, for each prepared model by parameter name."""
        return [
            {name: local(p.grad) for name, p in model.named_parameters() if p.grad is not None}
            for model, _ in self._run.prepared
        ]

    def load(self, saved: list[dict[str, torch.Tensor]]) -> None:
        for (model, _), gradients in zip(self._run.prepared, saved, strict=False):
            for name, parameter in model.named_parameters():
                if name in gradients:
                    parameter.grad = torch.zeros_like(parameter)
                    local(parameter.grad).copy_(gradients[name])

    @property
    def never_cleared(self) -> bool:
        """Whether each step adds to the gradients of those before: then there is no end of a window to wait for."""
        return any(self._carried.values())

    def begins_after_step(self, optimizer: Optimizer) -> bool:
        """Whether the body at hand is the one after a step of ``optimizer``."""
        stepped = self._stepped.get(id(optimizer))
        # By the steps done: those that were reached do not count a micro-batch before the last of its step.
        return stepped is not None and stepped == self._run.global_step

    def learn(self, optimizer: Optimizer, *, carried: bool) -> None:
        """Note what was found at the first backward after a step."""
        if carried and not self.never_cleared:
            warnings.warn(
                f"gradients are never cleared: each step of {type(optimizer).__name__} adds to those of the steps "
                "before. Is opt.zero_grad() missing? run.step(opt) clears what is there at the step, and not what a "
                "later loss of the body leaves on its model (a GAN's generator loss on the discriminator)",
                stacklevel=2,
            )
        self._carried[id(optimizer)] = carried

    def _note_step(self, optimizer: Optimizer, *_: Any) -> None:
        self._stepped[id(optimizer)] = self._run.steps_reached
        mark = _mark(optimizer)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if (gradient := parameter.grad) is not None:
                    setattr(gradient, mark, gradient._version)

    def any_here(self) -> bool:
        """Whether this rank has gradients that wait."""
        later: set[int] = set()  # parameters of optimizers that were prepared after this one
        for optimizer in reversed(self._run.optimizers):
            if not hasattr(optimizer, "register_step_post_hook"):
                continue
            own = {id(p) for group in optimizer.param_groups for p in group["params"]}
            stepped = self._stepped.get(id(optimizer))
            # That of an earlier stage, whose model has another one now: these gradients are for the other one.
            retired = own <= later and (stepped is None or stepped <= self._begun)
            later |= own
            if retired:
                continue
            if stepped is not None and not self._carries(optimizer, stepped):
                continue
            parameters = (p for group in optimizer.param_groups for p in group["params"])
            if any(p.grad is not None and bool(_values(p.grad).any()) for p in parameters):
                return True
        return False

    def _carries(self, optimizer: Optimizer, stepped: int) -> bool:
        """Whether gradients that are there after a step are for the next one."""
        changed = _changed(optimizer)
        if stepped == self._run.steps_reached:
            # Gradients that another loss adds after the step are cleared before the next one.
            return self._carried.get(id(optimizer), changed)
        # Unchanged since a step of an earlier body: the step used them, and they are cleared later, or never.
        return changed or self._carried.get(id(optimizer), False)


class _Witness:
    """Looks, at each backward of a body after a step, whether the gradients were cleared since, until the next step.

    Not at the first one alone: if two optimizers of one model take turns, each cleared before its own backward, the
    first finds what the other's backward has left."""

    def __init__(self, pending: PendingGradients, optimizer: Optimizer, parameter: nn.Parameter) -> None:
        self._pending = pending
        self._optimizer = optimizer
        self._parameter = parameter

    def __enter__(self) -> _Witness:
        view: Any = self._parameter.expand_as(self._parameter)
        self._node = view.grad_fn.next_functions[0][0]  # where its gradient is accumulated
        self._handle: Any = self._node.register_prehook(self._look)
        self._found = False  # gradients that were there at a backward, and that nothing has cleared yet
        self._on_step = self._optimizer.register_step_pre_hook(self._stepping)
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.remove()
        self._on_step.remove()

    def _look(self, gradients: Any) -> None:
        if not self._pending.begins_after_step(self._optimizer):
            return
        left = self._parameter.grad
        self._found = left is not None and bool(_values(left).any())
        if not self._found:
            self._handle.remove()
            self._on_step.remove()
            self._pending.learn(self._optimizer, carried=False)

    def _stepping(self, *_: Any) -> None:
        if self._found:
            self._found = False
            self._handle.remove()  # not this hook: the optimizer is going through its hooks
            self._pending.learn(self._optimizer, carried=True)


def _first(optimizer: Optimizer) -> nn.Parameter | None:
    parameters = (p for group in optimizer.param_groups for p in group["params"])
    return next((p for p in parameters if p.requires_grad and p.is_leaf), None)


def _mark(optimizer: Optimizer) -> str:
    """The attribute of a gradient that says how often it had been written to when ``optimizer`` stepped with it. An
    address would not tell a gradient from the next one: a freed block of memory is soon given out again."""
    return f"_rankup_stepped_{id(optimizer)}"


def _changed(optimizer: Optimizer) -> bool:
    """Whether some gradient is new, or was written to, since the last step."""
    mark = _mark(optimizer)
    gradients = (p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None)
    return any(getattr(gradient, mark, None) != gradient._version for gradient in gradients)


def _values(gradient: torch.Tensor) -> torch.Tensor:
    """This rank's part of it; of an embedding's sparse gradient the stored values."""
    return gradient._values() if gradient.is_sparse else local(gradient)
