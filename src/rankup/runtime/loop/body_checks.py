"""What cannot be done in a loop's body under some strategies: there a rank may see a part of its batch only."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rankup.runtime.api import Run


def check_sum(run: Run) -> None:
    """An error in a body, if ranks may run it differently often: a sum over ranks would miss parts, or never end."""
    if run.batch is not None:
        run.strategy.check("sum_in_body")


def check_buffers(run: Run) -> None:
    """An error in a body, if the buffers at hand are those of a part of the batch, and no state of the run."""
    if run.batch is not None and any(True for model in run.models for _ in model.buffers()):
        run.strategy.check("buffers_in_body")
