"""How many steps the optimizers of a loop have taken: a body that leaves out its batch takes none.

The loop counts a batch when its body has ended. Only the optimizer tells whether it was trained on.
"""

from __future__ import annotations

from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook


class OptimizerSteps:
    """Of one loop on this rank: the steps of all optimizers. A step that another one takes inside of its own, as
    ``ZeroRedundancyOptimizer`` does, is one step."""

    def __init__(self) -> None:
        self.count = 0
        self._depth = 0
        self._hooks: list[Any] = []

    def begin(self) -> None:
        self.end()
        self.count = self._depth = 0
        self._hooks = [
            register_optimizer_step_pre_hook(self._before),
            register_optimizer_step_post_hook(self._after),
        ]

    def end(self) -> None:
        while self._hooks:
            self._hooks.pop().remove()

    def _before(self, *_: Any) -> None:
        self._depth += 1

    def _after(self, *_: Any) -> None:
        self._depth -= 1
        self.count += self._depth == 0
