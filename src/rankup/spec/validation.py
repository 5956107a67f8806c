"""What pydantic says of a wrong value, as the one sentence that a user needs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from rankup.core.nearest import did_you_mean
from rankup.errors import RankupError
from rankup.spec.flag import Flag
from rankup.spec.jobspec import JobSpec


def flag(key: str, of: str = "submit") -> str:
    """The flag that sets a key of ``JobSpec`` in commands of this kind (see ``Flag``): ``--cpus-per-task``."""
    key = key.partition(".")[0].replace("secrets", "env")  # a secret is an --env without a value
    field = JobSpec.model_fields.get(key)
    flags = [flag for flag in (field.metadata if field else ()) if isinstance(flag, Flag) and of in flag.of]
    return next((flag.names[0] for flag in flags if flag.names), f"--{key.replace('_', '-')}")


def check_keys(given: Iterable[str], known: Iterable[str], *, where: str) -> None:
    """Refuse the first key of ``given`` that is not ``known``, and name the nearest that is."""
    known = list(known)
    for key in given:
        if key not in known:
            raise RankupError(
                "unknown-key",
                f"there is no key {key!r}{did_you_mean(key.replace('-', '_'), known)}",
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
        return key, f"{value!r} is no list", f"{key} = [{_quoted(value)}]"
    return key, f"{value!r} cannot be: {first['msg'][:1].lower()}{first['msg'][1:]}", ""


def _choice(value: Any, expected: str) -> tuple[str, str]:
    words = [word for word in expected.replace(" or ", ", ").replace("'", "").split(", ") if word]
    return f"there is no {value!r}{did_you_mean(str(value), words)}", f"one of: {', '.join(words)}"


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
