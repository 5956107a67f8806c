"""The code before an inner loop runs again if its epoch is resumed in the middle: it must not change the state then.

In a training without an interruption it ran at the epoch's beginning. Random numbers that it draws are taken back, and
plain attributes that it sets; a change of anything else that the snapshot has restored is an error.
"""

from __future__ import annotations

from rankup.errors import RankupError
from rankup.runtime.checkpointing.plain_values import PlainValues
from rankup.runtime.context import RunContext
from rankup.runtime.seed import rng_state, set_rng_state
from rankup.runtime.tracing.fingerprint import fingerprint


class ResumedEpoch:
    """Made when everything is restored; ``check`` when the first batch is next."""

    def __init__(self, run: RunContext, plain: PlainValues) -> None:
        self._run = run
        self._plain, self._values = plain, plain.state()
        self._random = rng_state()
        self._before = _fingerprints(run)

    def check(self) -> None:
        now = _fingerprints(self._run)
        changed = [name for name, mark in now.items() if mark != self._before.get(name)]
        if changed:
            raise RankupError(
                "changed-before-inner-loop",
                f"the code before the inner loop changes {changed[0]}, and the epoch is resumed in its middle: without "
                "the interruption this code ran at the epoch's beginning only",
                hint="if epoch.done == 0: …   # or move it after the inner loop, where it runs once per epoch",
                exit_code=1,
            )
        set_rng_state(self._random)
        self._plain.load(self._values)


def _fingerprints(run: RunContext) -> dict[str, str]:
    found = {}
    for name, thing in run.registered.items():
        if not getattr(thing, "timed", False):
            # How often a schedule was stepped: it may be set to the epoch again, by sched.step(epoch.index).
            state = {key: value for key, value in thing.state_dict().items() if key != "_step_count"}
            found[f"{name} (run.register)"] = fingerprint(state)
    for optimizer in run.optimizers:
        for group in getattr(optimizer, "param_groups", []):
            options = {option: value for option, value in group.items() if option != "params"}
            found[f"an option of {type(optimizer).__name__} ({len(found)})"] = fingerprint(options)
    for model in run.models:
        found[f"the weights of {type(model).__name__} ({len(found)})"] = fingerprint(list(model.parameters()))
    return found
