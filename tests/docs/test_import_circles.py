"""No module of the package imports itself by way of others, also not for its types alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"


def imports_of(root: Path) -> dict[str, set[str]]:
    """Module → the modules below ``root`` that it names in an import, wherever that is: at its top, under
    TYPE_CHECKING, in a function."""
    files = {}
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    found: dict[str, set[str]] = {}
    for module, path in files.items():
        named: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{module} imports relatively, which this test does not follow"
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    named.add(inner if inner in files else str(node.module))
        found[module] = named & files.keys() - {module}
    return found


def circle_in(imports: dict[str, set[str]]) -> list[str]:
    """One circle, each module followed by one that it imports; [] if there is none."""
    done: set[str] = set()
    for start in sorted(imports):
        path: list[str] = []
        pending = [iter([start])]
        while pending:
            module = next(pending[-1], None)
            if module is None:
                pending.pop()
                if path:
                    done.add(path.pop())
            elif module in path:
                return [*path[path.index(module) :], module]
            elif module not in done:
                path.append(module)
                pending.append(iter(sorted(imports[module])))
    return []


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    return imports_of(SRC)


def test_no_module_imports_itself_by_way_of_others(imports: dict[str, set[str]]):
    circle = circle_in(imports)
    assert not circle, "a circle of imports: " + " -> ".join(circle)


def test_no_module_of_the_runtime_imports_the_face_that_users_see(imports: dict[str, set[str]]):
    back = [
        m
        for m, named in imports.items()
        if m.startswith("rankup.runtime")
        and m != "rankup.runtime.init"  # which makes it
        and named & {"rankup.runtime.api", "rankup.runtime.init"}
    ]
    assert not back


@pytest.mark.parametrize(
    ("sources", "circle"),
    [
        ({"a": "import b", "b": "import c", "c": "import a"}, ["a", "b", "c", "a"]),
        ({"a": "def f():\n    from b import x", "b": "from a import y"}, ["a", "b", "a"]),
        (
            {"a": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import b", "b": "import a"},
            ["a", "b", "a"],
        ),
        ({"a": "import b\nimport c", "b": "import c", "c": ""}, []),
        ({"a": "import os", "b": "import a"}, []),
    ],
)
def test_a_circle_is_found_at_the_top_in_functions_and_under_type_checking(
    tmp_path: Path, sources: dict[str, str], circle: list[str]
):
    for name, source in sources.items():
        (tmp_path / f"{name}.py").write_text(source)
    assert circle_in(imports_of(tmp_path)) == circle
