"""Arguments of another type than documented: one error with the right form, instead of a traceback from far inside."""

from __future__ import annotations

from typing import Any

from rankup.errors import RankupError


def check_types(call: str, given: dict[str, tuple[Any, tuple[type, ...], str]]) -> None:
    """``given``: name → (value, the types that it may have, how it is written). An int does not pass for a bool."""
    for name, (value, types, example) in given.items():
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            wanted = " or ".join("None" if kind is type(None) else kind.__name__ for kind in types)
            raise RankupError(
                "bad-argument",
                f"{call}({name}={value!r}): {name} must be {wanted}, got {type(value).__name__}",
                hint=f"for example {name}={example}",
            )
