"""The map in ``docs/explanation/architecture.md`` is that of the tree, and no document names a module that is gone."""

from __future__ import annotations

import ast
import functools
import re
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "rankup"
ARCHITECTURE = ROOT / "docs" / "explanation" / "architecture.md"
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted(
        {*(ROOT / "docs").rglob("*.md")} - {*(ROOT / "docs/reference/rules").iterdir()}
    ),  # which holds users' scripts
]
INITS = sorted(PACKAGE.rglob("__init__.py"))
#: The list of the whole package is the map; that of the commands is the table in ``cli/app.py``; that of the rules is
#: ``docs/reference/rules/``.
_LISTED_ELSEWHERE = {PACKAGE, PACKAGE / "cli" / "commands", *(PACKAGE / "check" / "rules").iterdir()}

_ROW = re.compile(
    r"^(?P<indent> +)(?P<name>[a-z_]+)(?P<kind>/|\.py) +(?:\[(?P<floor>\d+)\] +)?(?P<what>\S.*)?$", re.M
)
_LISTED = re.compile(r"^(?:\||-|\*) *((?:``[\w./]+``(?:, )?)+)", re.M)  # a row of a table, or of a list
_FILE = re.compile(r"(?<![\w./*$-])(?:[a-z_]+/)*[a-z_]+\.(?:py|sh)\b(?!\()")
_MODULE = re.compile(r"\brankup(?!\.toml\b)(?:\.[a-z_]+)+")
#: Files of users and of run directories, which documents name as well.
_THEIRS = {
    "train.py",
    "trian.py",
    "script.py",
    "job.sh",
    "rank.sh",
    "signal.py",
    "conda.sh",
    "eval.py",
    "rankup.fish",
}


def floors() -> dict[str, int]:
    """Package → number of its floor, from import-linter's contract, whose first line is the top."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    return {
        name.strip().removeprefix("rankup."): floor
        for floor, layer in enumerate(reversed(layers))
        for name in layer.split("|")
    }


def drawn(text: str) -> list[tuple[str, int | None]]:
    """(path, floor) of each row of the map; a row that is indented further belongs to the one above."""
    (block, *_) = re.findall(r"^```\n(src/rankup/\n.*?)^```$", text, re.M | re.S)
    rows, parents = [], {}
    for row in _ROW.finditer(block.replace("/\n", "/  -\n")):
        name = row["name"] + row["kind"]
        indent = len(row["indent"])
        above = max((one for one in parents if one < indent), default=0)
        name = parents.get(above, "") + name
        parents = {one: path for one, path in parents.items() if one < indent} | {indent: name}
        rows.append((name, int(row["floor"]) if row["floor"] else None))
    return rows


def submodules(init: Path) -> set[str]:
    folder = init.parent
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    return packages | {
        path.stem for path in folder.glob("*.py") if path.name not in ("__init__.py", "__main__.py")
    }


def listed(init: Path) -> list[str]:
    """The names that a package's docstring lists: in the first column of a table, or after "In reading order:"."""
    text = ast.get_docstring(ast.parse(init.read_text())) or ""
    prose = re.findall(r"In reading order:(.*?)(?:\n\n|\Z)", text, re.S)
    lists = [*_LISTED.findall(text), *(re.sub(r"\([^)]*\)", "", one) for one in prose)]
    names = [name for one in lists for name in re.findall(r"``([\w./]+)``", one)]
    return [name.removesuffix(".py") for name in names if not name.endswith("/")]


@functools.cache
def ours() -> frozenset[str]:
    """All files of the repository that a document may name, with their folders."""
    tops = (ROOT / name for name in ("src", "tests", "examples", "benchmarks", "tools"))
    return frozenset(str(path) for top in tops for path in top.rglob("*") if path.suffix in (".py", ".sh"))


def stale(text: str) -> list[str]:
    """The files and modules in ``text`` that exist neither in the repository nor among the names that are not ours."""
    files = [
        name
        for name in _FILE.findall(text)
        if name not in _THEIRS and not any(f"/{path}".endswith(f"/{name}") for path in ours())
    ]
    return files + [name for name in _MODULE.findall(text) if name not in _THEIRS and not importable(name)]


def importable(name: str) -> bool:
    """Whether ``rankup.a.b.c`` leads to a package, into a module, or to a name that a package's ``__init__`` has."""
    folder = ROOT / "src"
    for part in name.split("."):
        if (folder / f"{part}.py").exists():
            return True
        if not (folder / part).is_dir():
            return re.search(rf"\b{part}\b", (folder / "__init__.py").read_text()) is not None
        folder /= part
    return True


def test_the_map_names_each_package_once_with_its_floor():
    expected: dict[str, int | None] = {"__init__.py": None}
    numbers = floors()
    for name, floor in numbers.items():
        expected[f"{name}/" if (PACKAGE / name).is_dir() else f"{name}.py"] = floor
    for init in INITS:
        path = init.parent.relative_to(PACKAGE).as_posix() + "/"
        if path.count("/") > 1:
            expected[path] = None
    rows = drawn(ARCHITECTURE.read_text())
    assert sorted(name for name, _ in rows) == sorted(expected)
    assert dict(rows) == expected


def test_the_contract_names_every_package():
    assert set(floors()) == {path.parent.name for path in PACKAGE.glob("*/__init__.py")} | {"errors"}


@pytest.mark.parametrize("init", INITS, ids=lambda path: path.parent.relative_to(PACKAGE.parent).as_posix())
def test_a_package_lists_exactly_its_modules(init):
    names = listed(init)
    if names or (len(submodules(init)) > 1 and init.parent not in _LISTED_ELSEWHERE):
        assert sorted(names) == sorted(submodules(init)), (
            f"{init.relative_to(ROOT)}: lists other modules than it has"
        )


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_documents_name_files_that_exist(page):
    assert stale(page.read_text()) == []


def test_docstrings_and_comments_name_modules_that_exist():
    """Only what is in double backticks, as ``core/shell.py``: other text may name a user's files."""
    sources = {path.relative_to(ROOT).as_posix(): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
    found = {path: stale(" ".join(re.findall(r"``([a-z_/]+\.py)``", text))) for path, text in sources.items()}
    assert {path: names for path, names in found.items() if names} == {}


def test_a_module_that_is_gone_is_found():
    assert stale("see jobs/local.py, `core/shell.py` and rankup.core.shell") == ["jobs/local.py"]
    assert stale("`rankup.jobs.local`, `rankup.init()`, rankup.core.files.write_atomic") == [
        "rankup.jobs.local"
    ]
    assert stale("gone.py in train.py") == ["gone.py"]


def test_the_map_is_read_row_by_row():
    text = "```\nsrc/rankup/\n  core/   [1]  units\n  errors.py [0] an error\n  schedulers/ [5] who\n    slurm/\n```\n"
    rows = [("core/", 1), ("errors.py", 0), ("schedulers/", 5), ("schedulers/slurm/", None)]
    assert drawn(text) == rows


def bound(module: str) -> set[str]:
    """The names that a module of ours has at its top level; those of a package that loads them on first use, too."""
    path = ROOT / "src" / module.replace(".", "/")
    text = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
    names = {each.stem for each in path.iterdir()} if path.is_dir() else set()
    left: list[ast.AST] = [ast.parse(text)]
    while left:
        node = left.pop()
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
                continue  # what is inside is not the module's
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.alias(name=name, asname=other):
                names.add(other or name)
            case ast.Constant(value=str(name)) if path.is_dir():
                names.add(name)
        left += ast.iter_child_nodes(node)
    return names


def test_what_benches_tools_and_examples_import_of_rankup_is_there():
    """They run seldom: a name that has moved would be noticed late."""
    files = [path for top in ("benchmarks", "tools", "examples") for path in (ROOT / top).rglob("*.py")]
    imports = [
        (path.relative_to(ROOT), node.module, alias.name)
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        and node.module is not None
        and node.module.split(".")[0] == "rankup"
        for alias in node.names
    ]
    assert len(imports) > 50
    names = {module: bound(module) for _, module, _ in imports}
    assert [each for each in imports if each[2] not in names[each[1]]] == []
