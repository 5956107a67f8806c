"""``run.state``: the state of a run for scripts that store it themselves."""

from __future__ import annotations

from typing import Any

from rankup.errors import RankupError
from rankup.runtime.checkpointing import state
from rankup.runtime.checkpointing.state_parts import StateParts
from rankup.runtime.context import RunContext
from rankup.runtime.loop.optimizer_steps import OptimizerSteps


class RunState:
    """Models, optimizers, what was registered, the positions in the data, this rank's generators."""

    def __init__(self, run: RunContext, parts: StateParts, steps: OptimizerSteps) -> None:
        self._run = run
        self._parts = parts
        self._steps = steps

    def state_dict(self) -> dict[str, Any]:
        """Everything that this rank needs to go on from here. Tensors are the live ones: copy or save it before the
        next step. Take it in the loop's body after ``run.step(opt)``, or last thing after the inner loop.
        """
        check_between_steps(self._run)
        taken = state.collect(self._run, self._parts, shared=True, gradients=self._steps.gradients_wait())
        return {"tensors": taken.tensors, "rank_state": taken.rank_state, "metadata": taken.metadata}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Put back what ``state_dict`` gave, after ``prepare`` and ``register`` and before the first step, or between
        two epochs. Raises RankupError in the body of a loop, which goes on with its own next batches."""
        if self._run.batch is not None:
            raise RankupError(
                "load-in-body",
                "run.state.load_state_dict in the body of a loop: the loop would go on with the batches after its own "
                "step, and not with those after the step of the state",
                hint="load the state before the loop, or after the inner loop of an epoch; for the weights alone, "
                "model.load_state_dict",
                exit_code=1,
            )
        tensors, mine, metadata = (state_dict[key] for key in ("tensors", "rank_state", "metadata"))
        self._parts.note_begin(self._run)
        state.check(self._run, self._parts, metadata)
        state.restore(self._run, self._parts, tensors, mine, mine, metadata)


def check_between_steps(run: RunContext) -> None:
    """An error if a training cannot go on from the state at hand."""
    run.check_buffers()
    if run.batch is not None and not run.batch.last:
        raise RankupError(
            "mid-step",
            "the state is to be taken between two micro-batches of a step",
            hint="take it after the last one: `if run.batch.last: …`",
            exit_code=1,
        )
