"""What the optimizers of a loop did: a hook on each prepared one, which counts, and nothing that grows with a model.

From it follow how many steps were taken, whether a body took none (ranks must agree, and gradients may wait for the
step of a later body), and that a save in flight has copied the moments before they change.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from weakref import ref

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from rankup.core.whole_lines import warn
from rankup.runtime.context import RunContext
from rankup.strategies.clipping import local
from rankup.strategies.inner_optimizers import with_inner

_MOST_IDLE = 1000  # steps that are kept for a message


class _Stepped:
    """What is known of the last step of a prepared optimizer. Its hook runs in each step of the training, where most of
    what it costs are the cache lines that it touches (``python -m benchmarks steps``)."""

    __slots__ = ("_steps", "gradient", "optimizer", "reached", "version")

    def __init__(self, steps: OptimizerSteps, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.reached = -1  # the step of the loop
        # A gradient that it stepped with, and its version then. The reference is weak: a gradient that is kept would
        # take the next one's place in the cache.
        self.gradient: ref[torch.Tensor] | None = None
        self.version = 0
        self._steps = steps

    def hook(self, *_: Any) -> None:
        steps = self._steps
        self.reached = steps.run.steps_reached
        if steps.attends:
            steps.attend(self)
        else:
            steps.count += 1
        for parameter in self.optimizer.param_groups[0]["params"]:  # one gradient, for all
            if (gradient := parameter.grad) is not None:
                self.gradient, self.version = ref(gradient), gradient._version
                return
        self.gradient = None

    def unchanged(self) -> bool:
        """Whether that gradient is there still, and has not changed since."""
        gradient = self.gradient() if self.gradient is not None else None
        return (
            gradient is not None
            and gradient._version == self.version
            and any(parameter.grad is gradient for parameter in self.optimizer.param_groups[0]["params"])
        )


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
        self.run = run
        self._shared = run.replicas > 1
        # Before the next step, what a save in flight still copies: hooks until then.
        self._waits: list[RemovableHandle] = []
        self.attends = True  # whether a step does more than count
        self._last = 0  # the step of the loop in which an optimizer stepped last, as far as it is looked at
        self._seen: dict[int, _Stepped] = {}  # by the id of an optimizer
        self._compared = False  # whether it matters in which steps an optimizer, or which of several, stepped
        self._clearing: dict[int, _Clearing] = {}  # by the id of an optimizer, until the answer is known
        self._never_cleared: set[int] = set()  # optimizers whose steps add to the gradients of those before

    def begin(self, stack: ExitStack) -> None:
        """Until ``stack`` closes."""
        self.count, self._last = 0, self.run.global_step
        self._begun = self.run.steps_reached
        self.idle, self.idle_sum = [], 0
        self._depth = 0
        self._clearing = {}
        stack.callback(self._wait_no_more)
        stepping = self._stepping_ones()
        alone = len(stepping) == 1 and not self._shared
        self._compared = not alone or self.run.control is not None
        for each, optimizer in stepping:
            if not alone:
                stack.callback(each.register_step_pre_hook(self._stepping).remove)
            seen = self._seen.setdefault(id(optimizer), _Stepped(self, optimizer))
            stack.callback(each.register_step_post_hook(seen.hook).remove)
        for optimizer in self.run.optimizers:
            if (first := _first(optimizer)) is not None and not hasattr(first, "to_local"):
                self._clearing[id(optimizer)] = clearing = _Clearing(self, optimizer, first)
                stack.callback(clearing.close)
        self._set_attends()

    def _stepping_ones(self) -> list[tuple[Any, Optimizer]]:
        """Each optimizer that may step, and the prepared one that holds it: SAM steps the one that it holds, and never
        itself."""
        return [
            (each, optimizer)
            for optimizer in self.run.optimizers
            for each in with_inner(optimizer)
            if hasattr(each, "register_step_post_hook")
        ]

    def wait_before_next(self, wait: Callable[[], None]) -> None:
        """Call ``wait`` before the next step."""
        if not self._waits:
            self._waits = [
                each.register_step_pre_hook(lambda *_: wait()) for each, _ in self._stepping_ones()
            ]
            self._set_attends()

    def _wait_no_more(self) -> None:
        while self._waits:
            self._waits.pop().remove()

    def note_idle(self) -> None:
        """Steps of the loop up to the one at hand are done."""
        self._note_between(self.run.global_step + 1)
        self._last = self.run.global_step

    def _stepping(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._depth += 1
        if (
            self._shared and len(args) < 2 and kwargs.get("closure") is None
        ):  # else it computes its gradients itself
            self.run.strategy.check_reduced(optimizer)

    def _set_attends(self) -> None:
        self.attends = bool(self._compared or self._waits or self._clearing)

    def attend(self, seen: _Stepped) -> None:
        """After a step: all but what ``_Stepped`` does by itself."""
        if self._depth > 1:
            self._depth -= 1
        else:
            self._depth = 0
            self.count += 1
        if (reached := seen.reached) != self._last:
            if reached != self._last + 1:
                self._note_between(reached)
            self._last = reached
        if self._waits:
            self._wait_no_more()
        clearing = self._clearing.get(id(seen.optimizer))
        if clearing is not None and clearing.stepped():
            del self._clearing[id(seen.optimizer)]
        self._set_attends()

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
        for optimizer in reversed(self.run.optimizers):
            if not hasattr(optimizer, "register_step_post_hook"):
                continue
            seen = self._seen.get(id(optimizer))
            step = seen.reached if seen is not None else -1
            own = {id(p) for group in optimizer.param_groups for p in group["params"]}
            earlier_stage, retired = step <= self._begun and own <= retired, retired | own
            if earlier_stage:
                continue
            # A step in this body has used them; one of an earlier body has used those that have not changed since.
            used = seen is not None and (step == self.run.steps_reached or seen.unchanged())
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
        seen = self._seen.get(id(optimizer))
        # Steps that were reached do not count a micro-batch before the last.
        return seen is not None and seen.reached == self.run.global_step

    def learn_never_cleared(self, optimizer: Optimizer) -> None:
        if not self._never_cleared:
            warn(
                f"gradients are never cleared: each step of {type(optimizer).__name__} adds to those of the steps "
                "before. Is opt.zero_grad() missing? run.step(opt) clears what is there at the step, and not what a "
                "later loss of the body leaves on its model (a GAN's generator loss on the discriminator)"
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
        self._left: bool | None = None  # whether all backwards since a step found gradients
        self._hook = parameter.register_hook(self._look)  # type: ignore[no-untyped-call]

    def _look(self, _: torch.Tensor) -> None:
        if self._left is not False and self._steps.begins_after_step(self._optimizer):
            left = self._parameter.grad
            self._left = left is not None and bool(_values(left).any())

    def stepped(self) -> bool:
        """After a step of the optimizer. Whether the answer is known."""
        if self._left is None:
            return False
        self.close()
        if self._left:
            self._steps.learn_never_cleared(self._optimizer)
        return True

    def close(self) -> None:
        """Not within a backward."""
        self._hook.remove()
        if not self._parameter._backward_hooks:
            self._parameter._backward_hooks = None  # else each backward would ask an empty dictionary


def _first(optimizer: Optimizer) -> nn.Parameter | None:
    if not hasattr(optimizer, "register_step_post_hook"):
        return None
    parameters = (p for group in optimizer.param_groups for p in group["params"])
    return next((p for p in parameters if p.requires_grad and p.is_leaf), None)


def _values(gradient: torch.Tensor) -> torch.Tensor:
    """This rank's part of it; of an embedding's sparse gradient the stored values."""
    return gradient._values() if gradient.is_sparse else local(gradient)
