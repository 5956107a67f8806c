"""Variables of the environment: what launchers set, and what a program sets itself."""

from __future__ import annotations

import ast
from typing import Any

from rankup.check.facts.program.module import Definition, Scope, full_name
from rankup.check.facts.program.value import KIND_OF_VARIABLE, NOTHING, UNKNOWN, Atom, Value


def of_launcher(read: list[Any], default: Value = NOTHING) -> Value:
    """The value of variables that launchers set."""
    found = {Atom(KIND_OF_VARIABLE[name], name) for name in read if name in KIND_OF_VARIABLE}
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
