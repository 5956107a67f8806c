"""Whether a job's script imports rankup, as far as its text tells."""

from __future__ import annotations

import ast
from pathlib import Path


def imports_rankup(command: tuple[str, ...], folder: Path) -> bool:
    """Whether ``command`` starts a Python file, or ``-m`` a module below ``folder``, that imports rankup itself."""
    source = _source(command, folder)
    if source is None:
        return command[0] == "-m" and command[1].partition(".")[0] == "rankup"
    try:
        tree = ast.parse(source.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False  # unreadable here, or no Python: nothing that can be said
    return any("rankup" in _tops(node) for node in ast.walk(tree))


def _source(command: tuple[str, ...], folder: Path) -> Path | None:
    if command[0] == "-m":
        path = folder.joinpath(*command[1].split("."))
        candidates = [path.with_suffix(".py"), path / "__main__.py"]
    else:
        path = folder / command[0]
        candidates = [path / "__main__.py", *([path] if path.suffix == ".py" else [])]
    return next((file for file in candidates if file.is_file()), None)


def _tops(node: ast.AST) -> set[str]:
    """The packages that a statement imports: their first names."""
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom) and not node.level:
        return {(node.module or "").partition(".")[0]}
    return set()
