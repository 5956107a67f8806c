"""What pydantic says of wrong values, as one sentence each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import ValidationError

from rankup.core.nearest import did_you_mean
from rankup.findings.error import raise_errors
from rankup.findings.finding import Finding, Severity
from rankup.spec.flag import LAUNCH, RESOURCES, Flag
from rankup.spec.jobspec import JobSpec


def flag(key: str, of: str = "submit") -> str:
    """The flag that sets a key of ``JobSpec`` in commands of this kind (see ``Flag``): ``--cpus-per-task``."""
    key = key.partition(".")[0].replace("secrets", "env")  # a secret is an --env without a value
    field = JobSpec.model_fields.get(key)
    flags = [flag for flag in (field.metadata if field else ()) if isinstance(flag, Flag) and of in flag.of]
    return next((flag.names[0] for flag in flags if flag.names), f"--{key.replace('_', '-')}")


def launch_options() -> set[str]:
    """The options that say on what a job runs and how its processes start: ``--nproc-per-node``."""
    return {
        name
        for key, field in JobSpec.model_fields.items()
        for of in field.metadata
        if isinstance(of, Flag) and of.group in (RESOURCES, LAUNCH)
        for name in (of.names or (flag(key),))
    }


def unknown_keys(given: Iterable[str], known: Iterable[str], *, where: str) -> Iterator[Finding]:
    """Each key of ``given`` that is not ``known``, with the nearest one that is."""
    known = list(known)
    for key in given:
        if key not in known:
            yield Finding(
                "unknown-key",
                Severity.ERROR,
                f"unknown key {key!r}{did_you_mean(key.replace('-', '_'), known)}",
                place=where,
                fix=f"one of: {', '.join(known)}",
            )


def check_keys(given: Iterable[str], known: Iterable[str], *, where: str) -> None:
    """Refuse keys of ``given`` that are not ``known``, all of them at once."""
    raise_errors(unknown_keys(given, known, where=where))


def describe_errors(error: ValidationError) -> list[tuple[str, str, str]]:
    """Of each wrong value: its key (``node.cpus``; "" if several keys do not fit together), why, and a hint.

    Only the first of each key: the others follow from it.
    """
    described: dict[str, tuple[str, str, str]] = {}
    for details in error.errors():
        key, why, hint = _describe(dict(details))
        described.setdefault(key, (key, why, hint))
    return list(described.values())


def invalid(name: str, why: str) -> str:
    """One sentence: "--nodes must be at least 1, got 0"; "--time: '90' is not a duration"."""
    return f"{name} {why}" if why.startswith("must ") else f"{name}: {why}"


def _describe(first: dict[str, Any]) -> tuple[str, str, str]:
    path = [str(part) for part in first["loc"]]
    key = ".".join(part for part in path if not part.isdigit())
    value, context = first["input"], first.get("ctx", {})
    if first["type"] == "missing":
        return key, "must be given", ""
    if first["type"] == "value_error":
        return key, str(context["error"]), ""
    if first["type"] == "literal_error":
        return key, *_choice(value, context["expected"])
    if first["type"] in ("int_parsing", "int_from_float"):
        return key, f"must be a whole number, got {value!r}", ""
    if first["type"] == "float_parsing":
        return key, f"must be a number, got {value!r}", ""
    if first["type"] in ("greater_than_equal", "greater_than"):
        least = context.get("ge", context.get("gt", 0) + 1)
        return key, f"must be at least {least}, got {value}", ""
    if first["type"] == "too_short":
        return key, "must not be empty", ""
    if first["type"] == "tuple_type":
        return key, f"{value!r} is not a list", f"{key} = [{_quoted(value)}]"
    return key, f"invalid value {value!r}: {first['msg'][:1].lower()}{first['msg'][1:]}", ""


def _choice(value: Any, expected: str) -> tuple[str, str]:
    words = [word for word in expected.replace(" or ", ", ").replace("'", "").split(", ") if word]
    return f"unknown value {value!r}{did_you_mean(str(value), words)}", f"one of: {', '.join(words)}"


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
