"""What pydantic says of a wrong value, as the one sentence that a user needs."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from rankup.errors import RankupError

# Flags that are repeated are called in the singular; a secret is an --env without a value.
_FLAGS = {
    "queue": "--queue",
    "modules": "--module",
    "binds": "--bind",
    "directives": "--directive",
    "secrets": "--env",
}


def flag(key: str) -> str:
    """The flag that sets a key of ``JobSpec``: ``--cpus-per-task``."""
    return _FLAGS.get(key, "--" + key.partition(".")[0].replace("_", "-"))


def check_keys(given: Iterable[str], known: Iterable[str], *, where: str) -> None:
    """Refuse the first key of ``given`` that is not ``known``, and name the nearest that is."""
    known = list(known)
    for key in given:
        if key not in known:
            close = get_close_matches(key.replace("-", "_"), known, n=1)
            raise RankupError(
                "unknown-key",
                f"unknown key {key!r}" + (f"; did you mean {close[0]!r}?" if close else ""),
                context=where,
                hint=f"one of: {', '.join(known)}",
            )


def describe_error(error: ValidationError) -> tuple[str, str, str]:
    """Of the first wrong value: its key (``node.cpus``; "" where several keys do not fit together), why, and a hint."""
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    key = ".".join(part for part in path if not part.isdigit())
    value, context = first["input"], first.get("ctx", {})
    if first["type"] == "value_error":
        return key, str(context["error"]), ""
    if first["type"] == "literal_error":
        return key, *_choice(value, context["expected"])
    if first["type"] in ("greater_than_equal", "greater_than"):
        least = context.get("ge", context.get("gt", 0) + 1)
        return key, f"{value} is too few: {least} or more", ""
    if first["type"] == "too_short":
        return key, "there is nothing in it", ""
    if first["type"] == "tuple_type":
        return key, f"{value!r} is not a list", f"{key} = [{_quoted(value)}]"
    return key, f"invalid value {value!r}: {first['msg'][:1].lower()}{first['msg'][1:]}", ""


def _choice(value: Any, expected: str) -> tuple[str, str]:
    words = [word for word in expected.replace(" or ", ", ").replace("'", "").split(", ") if word]
    close = get_close_matches(str(value), words, n=1)
    return f"there is no {value!r}" + (
        f"; did you mean {close[0]!r}?" if close else ""
    ), f"one of: {', '.join(words)}"


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
