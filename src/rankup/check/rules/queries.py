"""What several rules ask of a program."""

from __future__ import annotations

from collections.abc import Collection

from rankup.check.facts.program.module import Call

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
