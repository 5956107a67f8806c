"""Which names a program uses and never defines: a sign that a page does not show all of it."""

from __future__ import annotations

import ast
import builtins

_KNOWN = frozenset(dir(builtins)) | {"__file__", "__name__", "__doc__"}


def undefined_names(tree: ast.Module) -> set[str]:
    """Names that are read somewhere and bound nowhere, in any scope of the program."""
    bound = bound_names(tree)
    read = {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    return set() if "*" in bound else read - bound - _KNOWN


def bound_names(tree: ast.Module) -> set[str]:
    """Names that something binds, in any scope of the program; ``*`` among them after a star import."""
    bound: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            bound.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            bound.add(node.name)
    return bound
