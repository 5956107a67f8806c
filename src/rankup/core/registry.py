"""Names to things, imported on demand: a literal table stays readable and ``--help`` stays fast."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from rankup.errors import RankupError


def load(target: str) -> object:
    """Import ``"package.module:attribute"``; errors inside the module are raised as they are."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


def target_of(kind: str, name: str, table: Mapping[str, str]) -> str:
    """The import target of ``name`` in ``table``, or an error that lists the known names."""
    if name not in table:
        from rankup.core.nearest import did_you_mean

        raise RankupError(
            f"unknown-{kind}",
            f"unknown {kind} {name!r}{did_you_mean(name, table)}",
            hint=f"one of: {', '.join(table)}",
        )
    return table[name]


def lookup(kind: str, name: str, table: Mapping[str, str]) -> object:
    """The thing called ``name`` in ``table`` (name → import target), imported now."""
    return load(target_of(kind, name, table))
