"""What several rules ask of a program."""

from __future__ import annotations

import ast
from collections.abc import Collection

from rankup.check.facts.program.module import Call
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import objects, the_constant

_OPTIMIZERS = ("torch.optim.", "apex.optimizers.", "bitsandbytes.optim.")
_BESIDE = (".lr_scheduler.", ".swa_utils.")


def makes_optimizer(call: Call) -> bool:
    """Whether a call makes an optimizer; schedules and averages of weights, which live beside them, are none."""
    name = call.name
    return (
        name.startswith(_OPTIMIZERS) and call.last[:1].isupper() and not any(part in name for part in _BESIDE)
    )


def make_optimizers(calls: Collection[Call]) -> bool:
    """Whether a value is certainly an optimizer: each call that may have made it makes one."""
    return bool(calls) and all(map(makes_optimizer, calls))


def is_of_scaler(program: Program, call: Call) -> bool:
    """Whether a call is of a gradient scaler that is not switched off; by its name, if nothing else is known."""
    if call.base is None:
        return False
    made = objects(program.values.of(call.base, call.scope))
    if made:
        return all(
            one.name.endswith("GradScaler") and the_constant(program.value(one, "enabled")) is not False
            for one in made
        )
    return "scaler" in ast.unparse(call.base).lower() and not program.graph.called.get(call)
