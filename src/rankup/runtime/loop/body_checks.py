"""What some strategies do not allow in a loop's body, where a rank may see only a part of its batch."""

from __future__ import annotations

from rankup.runtime.context import RunContext


def check_sum(run: RunContext) -> None:
    """An error in a body that ranks may run unequally often: a sum over ranks would miss parts, or never end."""
    if run.batch is not None:
        run.strategy.check("sum_in_body")


def check_buffers(run: RunContext) -> None:
    """An error in a body, if the buffers are those of a part of the batch, and not a state of the run."""
    if run.batch is not None and any(True for model in run.models for _ in model.buffers()):
        run.strategy.check("buffers_in_body")
