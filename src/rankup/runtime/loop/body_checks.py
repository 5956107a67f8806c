"""What cannot be done in a loop's body under some strategies: there a rank may see a part of its batch only."""

from __future__ import annotations

from rankup.runtime.context import RunContext


def check_sum(run: RunContext) -> None:
    """An error in a body, if ranks may run it differently often: a sum over ranks would miss parts, or never end."""
    if run.batch is not None:
        run.strategy.check("sum_in_body")


def check_buffers(run: RunContext) -> None:
    """An error in a body, if the buffers at hand are those of a part of the batch, and no state of the run."""
    if run.batch is not None and any(True for model in run.models for _ in model.buffers()):
        run.strategy.check("buffers_in_body")
