"""The list in a package's ``__init__`` names each of its modules once, and nothing else."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "rankup"
PACKAGES = [
    "runtime",
    *(f"runtime/{part}" for part in ("data", "loop", "distributed", "checkpointing", "tracing")),
]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_lists_its_modules_in_its_docstring(package: str):
    folder = SRC / package
    listed = [
        name
        for line in str(ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))).splitlines()
        if line.startswith("- ")
        for name in re.findall(r"``(\w+)``", line.partition(": ")[0])
    ]
    there = {path.stem for path in folder.glob("*.py") if path.stem != "__init__"}
    there |= {path.parent.name for path in folder.glob("*/__init__.py")}
    assert sorted(listed) == sorted(there)
