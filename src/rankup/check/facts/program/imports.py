"""The local modules that a program imports, directly and through one another."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from rankup.check.document import Document
from rankup.check.facts.program.frameworks import PACKAGES
from rankup.check.facts.program.module import Module, dotted, full_name
from rankup.check.facts.program.names import STANDARD
from rankup.check.facts.program.walk import parse, read_module

FindFile = Callable[[str], Document | None]
ListFolder = Callable[[str], tuple[str, ...] | None]

_MOST_FILES = 40
_LARGEST_FILE = 1_000_000  # characters; nobody writes a larger module by hand
#: What modules do when they are imported: settings, paths, logs.
_PREPARING = {
    "logging",
    "warnings",
    "sys",
    "os",
    "matplotlib",
    "plt",
    "logger",
    "np",
    "numpy",
    "random",
    "load_dotenv",
}
_PREPARING_VERBS = (
    "set_",
    "use",
    "append",
    "insert",
    "register",
    "seed",
    "manual_seed",
    "add_",
    "filter",
    "allow",
)
#: Packages that are not looked for beside the program.
KNOWN_PACKAGES = STANDARD | PACKAGES
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


@dataclass
class Project:
    """A program's modules by name, the program itself first."""

    main: Module
    modules: dict[str, Module] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)  # modules that may be local and were not found or not read

    def __iter__(self) -> Iterator[Module]:
        return iter(self.modules.values())


def read_project(main: Module, find_file: FindFile, list_folder: ListFolder) -> Project:
    project = Project(main, {"": main})
    waiting = [main]
    tried: dict[str, Module | None] = {}

    def load(name: str) -> Module | None:
        if name in tried:
            return tried[name]
        tried[name] = None
        if len(project.modules) >= _MOST_FILES:
            return None
        path = name.replace(".", "/")
        for candidate, package in ((f"{path}.py", False), (f"{path}/__init__.py", True)):
            for folder in ("", "../"):
                document = find_file(folder + candidate)
                if document is None or document.path == main.document.path:
                    continue
                module = _module_of(document, name, package)
                if module is None:
                    return None
                tried[name] = module
                project.modules[name] = module
                waiting.append(module)
                return module
        return None

    while waiting:
        module = waiting.pop(0)
        for name, level, names in module.imported:
            _follow(module, name, level, names, load, project)
        for name in _chosen(module, list_folder):
            load(name)
    for module in project:
        _resolve_imports(project, module)
    # A folder without an __init__.py is a package as well.
    project.missing -= {name.rpartition(".")[0] for name in project.modules}
    return project


def _chosen(module: Module, list_folder: ListFolder) -> Iterator[str]:
    """The modules that ``importlib.import_module`` can import: the one that it names, or all of the package."""
    for call in module.calls:
        if call.name != "importlib.import_module":
            continue
        start, whole = _start_of(call.argument("name", 0))
        name, package = start, _start_of(call.argument("package", 1))[0]
        if start.startswith("."):
            rest = start.lstrip(".")
            name = f"{package}.{rest}" if package else absolute(module, rest, len(start) - len(rest))
        if whole:
            yield name
        elif folder := name.rpartition(".")[0]:
            files = list_folder(folder.replace(".", "/")) or ()
            yield from (f"{folder}.{file[:-3]}" for file in files if file.endswith(".py") and file[0] != "_")


def _start_of(node: ast.AST | None) -> tuple[str, bool]:
    """The known beginning of a text, and whether that is all of it: of ``"a" + b``, ``f"a{b}"``, ``"a%s" % b``."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value, True
    if isinstance(node, ast.JoinedStr) and node.values:
        return _start_of(node.values[0])[0], False
    if isinstance(node, ast.BinOp):
        return _start_of(node.left)[0].partition("%")[0], False
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        return _start_of(node.func.value)[0].partition("{")[0], False
    return "", False


@lru_cache(maxsize=256)
def _module_of(document: Document, name: str, package: bool) -> Module | None:
    """A module, read once for all the programs that import it."""
    if len(document.text) > _LARGEST_FILE:
        return None
    try:
        return read_module(document, parse(document), name, package)
    except UNREADABLE:
        return None


def _resolve_imports(project: Project, module: Module) -> None:
    """Names that a local module imported itself (``from common import *``) get their full names."""
    changed = False
    for name, level, names in module.imported:
        if "*" in names:
            other = project.modules.get(absolute(module, name, level))
            for alias, full in other.imports.items() if other is not None else ():
                changed |= module.imports.setdefault(alias, full) == full
    for alias, full in list(module.imports.items()):
        target = _target(project, module, full)
        if target is not None and target[1]:
            holder, rest = target
            head, _, tail = rest.partition(".")
            origin = holder.imports.get(head)
            if origin is not None and not origin.startswith("."):
                module.imports[alias] = f"{origin}.{tail}" if tail else origin
                changed = True
    if changed:
        for call in module.calls:
            call.name = full_name(module, call.scope, call.node.func)


def _follow(
    module: Module,
    name: str,
    level: int,
    names: tuple[str, ...],
    load: Callable[[str], Module | None],
    project: Project,
) -> None:
    if level == 0 and name.partition(".")[0] in KNOWN_PACKAGES and not _is_odd(name, load):
        return
    full = absolute(module, name, level)
    found = load(full) if full else None
    if found is None and not any(load(f"{full}.{part}" if full else part) for part in names if part != "*"):
        project.missing.add(full or name or "?")
        return
    if found is not None and found.package:
        for part in names:  # from package import module
            if part != "*" and part not in found.scope.definitions and part not in found.scope.functions:
                load(f"{full}.{part}")
    if level == 0 and "." in full and not names:
        return
    parent = full.rpartition(".")[0]
    while parent:  # a package's __init__ runs as well
        load(parent)
        parent = parent.rpartition(".")[0]


def _is_odd(name: str, load: Callable[[str], Module | None]) -> bool:
    """A local module that has a known package's name: datasets.py, evaluate.py, idr_torch.py."""
    return name.partition(".")[0] in {
        "datasets",
        "evaluate",
        "optuna",
        "flash",
        "streaming",
        "idr_torch",
    } and (load(name) is not None)


def absolute(module: Module, name: str, level: int) -> str:
    """The full name of ``from ..name import`` inside a module."""
    if level == 0:
        return name
    package = module.name.split(".") if module.name else []
    if not module.package and package:
        package = package[:-1]
    if level > 1:
        package = package[: len(package) - (level - 1)]
    return ".".join([*package, *([name] if name else [])])


def local_target(project: Project, module: Module, full: str) -> tuple[Module, str] | None:
    """``pkg.mod.f`` as an import wrote it → the module that holds it, and the name there."""
    found = _target(project, module, full)
    for _ in range(5):  # a package's __init__ hands on what its modules define
        if found is None or found[1] not in found[0].imports:
            break
        found = _target(project, found[0], found[0].imports[found[1]])
    return found


def _target(project: Project, module: Module, full: str) -> tuple[Module, str] | None:
    if full.startswith("."):
        level = len(full) - len(full.lstrip("."))
        full = absolute(module, full.lstrip("."), level)
    parts = full.split(".")
    for count in range(len(parts), 0, -1):
        found = project.modules.get(".".join(parts[:count]))
        if found is not None:
            return found, ".".join(parts[count:])
    return None


def is_entry(tree: ast.Module) -> bool:
    """Whether a file does something when it is run: it has a main guard, or statements that are not definitions."""
    for statement in tree.body:
        if isinstance(statement, ast.If) and "__name__" in {
            node.id for node in ast.walk(statement.test) if isinstance(node, ast.Name)
        }:
            return True
        if isinstance(statement, (ast.For, ast.While, ast.With)):
            return True
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            parts = dotted(statement.value.func) or ["?"]
            if parts[0] not in _PREPARING and not parts[-1].startswith(_PREPARING_VERBS):
                return True  # main()
    return False
