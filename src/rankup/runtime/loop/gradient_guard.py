"""Between the micro-batches of a step only backward may change gradients: an error for a loop that does."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from rankup.errors import RankupError


class GradientGuard:
    """``remember`` after the backward of a micro-batch that is not the last, ``check`` before the next one."""

    def __init__(self) -> None:
        # A parameter that has a gradient, and the gradient's version.
        self._witness: tuple[nn.Parameter, int] | None = None

    def remember(self, models: Iterable[nn.Module]) -> None:
        parameters = (parameter for model in models for parameter in model.parameters())
        self._witness = next(((p, p.grad._version) for p in parameters if p.grad is not None), None)

    def check(self) -> None:
        """An error if the gradients of earlier micro-batches were cleared (a plain loop begins with zero_grad()) or
        changed (a plain loop clips them)."""
        witness, self._witness = self._witness, None
        if witness is None:
            return
        parameter, version = witness
        if parameter.grad is None:
            raise RankupError(
                "gradients-cleared",
                "the gradients of a micro-batch were cleared before the step",
                hint="leave zero_grad() out of the loop: run.step(opt) does it after the last micro-batch",
                exit_code=1,
            )
        if parameter.grad._version != version:
            raise RankupError(
                "gradients-changed",
                "gradients were changed after a micro-batch that is not the last of its step",
                hint="change them once per step, `if run.batch.last: …`; or clip by prepare(…, clip=…)",
                exit_code=1,
            )
