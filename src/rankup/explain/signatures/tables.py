"""Reads the tables of signatures. Their schema is that of ``Signature``: any other key, or type, is an error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankup.core.toml_file import read_toml
from rankup.explain.signatures.signature import Level, Signature

# Among equals the first one that matches a line is taken.
ORIGINS = ("slurm", "slurm_submit", "pbs", "lsf", "mpi", "nccl", "accelerators", "rendezvous", "collectives", "models",
           "files", "loaders", "frameworks", "trainers", "packages", "python", "system")  # fmt: skip
_TEXTS = ("level", "what", "cause", "fix", "example")
_LISTS: Mapping[str, type] = {
    "pattern": str,
    "rules": str,
    "exits": int,
    "better": str,
    "places": str,
    "may_be": str,
}


def read_signatures() -> tuple[Signature, ...]:
    """All tables, in the order of ``ORIGINS``. Raises ``ValueError`` for a table that is not in the schema."""
    found: dict[str, Signature] = {}
    for origin in ORIGINS:
        for name, values in read_toml(Path(__file__).with_name(f"{origin}.toml"), "table").items():
            if name in found:
                raise ValueError(f"{origin}.toml: the signature {name!r} exists already")
            found[name] = signature_of_table(name, values)
    return tuple(found.values())


def signature_of_table(name: str, values: Mapping[str, Any]) -> Signature:
    """One table. ``pattern`` and ``may_be`` list alternatives; a rule is its code and name, which readers see."""
    for key, value in values.items():
        if key in _LISTS:
            good = isinstance(value, list) and all(type(item) is _LISTS[key] for item in value)
        else:
            good = isinstance(value, str) if key in _TEXTS else type(value) is bool
        if not good:
            raise ValueError(f"[{name}] {key}: {value!r} has another type than it must have")
    given: dict[str, Any] = {key: tuple(value) if key in _LISTS else value for key, value in values.items()}
    try:
        level = Level[given.pop("level", "root").upper()]
        given |= {key: "|".join(given[key]) for key in ("pattern", "may_be") if key in given}
        re.compile("|".join((given["pattern"], given.get("may_be", ""), *given.get("places", ()))))
        return Signature(name=name, level=level, **given)
    except (KeyError, TypeError, re.error) as error:
        raise ValueError(f"[{name}] is not a signature: {error}") from error
