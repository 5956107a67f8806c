"""Variables of the environment: what launchers set, and what a program sets itself."""

from __future__ import annotations

import ast
from typing import Any

from rankup.check.facts.program import names
from rankup.check.facts.program.module import Definition, Scope, full_name
from rankup.check.facts.program.value import NOTHING, UNKNOWN, Atom, Kind, Value

_VARIABLES = (
    (names.RANK_VARIABLES, Kind.RANK),
    (names.LOCAL_RANK_VARIABLES, Kind.LOCAL_RANK),
    (names.WORLD_SIZE_VARIABLES, Kind.WORLD_SIZE),
    (names.LOCAL_SIZE_VARIABLES, Kind.LOCAL_SIZE),
    (names.NODE_RANK_VARIABLES, Kind.NODE_RANK),
    (names.DEVICE_LIST_VARIABLES, Kind.DEVICE_LIST),
)


def of_launcher(read: list[Any], default: Value = NOTHING) -> Value:
    """The value of variables that launchers set."""
    found: set[Atom] = set()
    for name in read:
        for table, kind in _VARIABLES:
            if name in table:
                found.add(Atom(kind, name))
    if not read or len(found) < len(read):
        return UNKNOWN
    return frozenset(found) | {Atom(atom.kind, atom.detail, fallback=True) for atom in default}


def sets_variable(definition: Definition, scope: Scope) -> bool:
    """Whether a definition is ``os.environ["NAME"] = …``, and no condition stands around it."""
    if not isinstance(definition.at, ast.Assign):
        return False
    targets = [target for target in definition.at.targets if isinstance(target, ast.Subscript)]
    if not any(full_name(scope.module, scope, target.value) == "os.environ" for target in targets):
        return False
    return not any(
        isinstance(holder, (ast.If, ast.Try, ast.For, ast.While))
        for holder, _ in scope.module.ancestors(definition.at)
    )
