"""One Python file: its scopes, calls and definitions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from rankup.check.document import Document, Span

Block = tuple[ast.AST, str]  # a statement, and the field of it whose list holds the next statement
Node = TypeVar("Node", bound=ast.AST)
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(eq=False, repr=False)
class Definition:
    """A place that gives a name a value."""

    name: str
    at: ast.AST  # the statement, or the expression with :=
    value: ast.expr | None  # None: nothing is known of it
    path: tuple[int, ...] = ()  # a, (b, c) = value: b is at (1, 0)
    item: bool = False  # the name takes the items of value, one after another


@dataclass(eq=False, repr=False)
class Scope:
    """A module, a class, a function or a lambda."""

    node: ast.AST
    module: Module
    parent: Scope | None
    name: str
    definitions: dict[str, list[Definition]] = field(default_factory=dict)
    returns: list[ast.expr] = field(default_factory=list)
    functions: dict[str, Scope] = field(default_factory=dict)  # functions and classes that it holds
    outer: set[str] = field(default_factory=set)  # global and nonlocal names
    calls: list[Call] = field(default_factory=list)  # those that run when the scope runs

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)

    @property
    def is_function(self) -> bool:
        return isinstance(self.node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))

    @property
    def bases(self) -> list[ast.expr]:
        """What a class extends."""
        return self.node.bases if isinstance(self.node, ast.ClassDef) else []

    @property
    def body(self) -> list[ast.stmt]:
        """The statements; a lambda has none."""
        body = getattr(self.node, "body", [])
        return body if isinstance(body, list) else []

    @cached_property
    def parameters(self) -> list[str]:
        if not isinstance(self.node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return []
        arguments = self.node.args
        return [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]

    @cached_property
    def all_parameters(self) -> set[str]:
        if not isinstance(self.node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return set()
        arguments = self.node.args
        extra = [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
        return {*self.parameters, *(a.arg for a in (*arguments.kwonlyargs, *extra))}

    @cached_property
    def is_method(self) -> bool:
        return self.parent is not None and self.parent.is_class and self.is_function and not self.is_static

    @cached_property
    def is_property(self) -> bool:
        if not self.is_method:
            return False
        decorators = getattr(self.node, "decorator_list", [])
        return any(isinstance(d, ast.Name) and d.id in {"property", "cached_property"} for d in decorators)

    @cached_property
    def is_static(self) -> bool:
        decorators = getattr(self.node, "decorator_list", [])
        return any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in decorators)


@dataclass(eq=False, repr=False)
class Call:
    """A call, with the full name of what is called if that comes from an import: ``torch.distributed.barrier``."""

    node: ast.Call
    module: Module
    scope: Scope
    name: str = ""

    @cached_property
    def last(self) -> str:
        """The last part of what is called, as written."""
        function = self.node.func
        return last_name(function) if isinstance(function, (ast.Name, ast.Attribute)) else ""

    @property
    def base(self) -> ast.expr | None:
        """What a method is called on."""
        return self.node.func.value if isinstance(self.node.func, ast.Attribute) else None

    @property
    def given(self) -> list[ast.expr]:
        """All arguments."""
        return [*self.node.args, *(k.value for k in self.node.keywords)]

    @property
    def text(self) -> str:
        """What is called, as written."""
        return ast.unparse(self.node.func)

    @property
    def spread(self) -> bool:
        """Whether arguments come from a list or a dictionary (``*a``, ``**k``)."""
        return any(isinstance(a, ast.Starred) for a in self.node.args) or any(
            k.arg is None for k in self.node.keywords
        )

    def argument(self, keyword: str, position: int | None = None) -> ast.expr | None:
        for given in self.node.keywords:
            if given.arg == keyword:
                return given.value
        if position is not None and position < len(self.node.args):
            before = self.node.args[: position + 1]
            if not any(isinstance(a, ast.Starred) for a in before):
                return self.node.args[position]
        return None

    @property
    def span(self) -> Span:
        return self.module.span(self.node)

    @property
    def keywords(self) -> set[str]:
        return {given.arg for given in self.node.keywords if given.arg}


@dataclass(eq=False, repr=False)
class Module:
    """A Python file that could be parsed."""

    document: Document
    name: str  # as it is imported; "" for the program itself
    tree: ast.Module
    package: bool = False  # an __init__.py
    parents: dict[ast.AST, Block] = field(default_factory=dict)
    scopes: dict[ast.AST, Scope] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    nodes: dict[type[ast.AST], list[ast.AST]] = field(
        default_factory=dict
    )  # of a few kinds, in reading order
    imports: dict[str, str] = field(default_factory=dict)  # local name → full name
    imported: list[tuple[str, int, tuple[str, ...]]] = field(default_factory=list)  # module, level, names
    addresses: list[ast.Constant] = field(default_factory=list)  # texts with "://"
    texts: set[str] = field(default_factory=set)  # all that it has

    @property
    def scope(self) -> Scope:
        return self.scopes[self.tree]

    def line(self, number: int) -> str:
        """How a reader finds a line of this file."""
        return self.document.line_name(number)

    def span(self, node: ast.AST) -> Span:
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        end_line = getattr(node, "end_lineno", None) or line
        end_column = getattr(node, "end_col_offset", None) or column
        return Span(self._offset(line, column), self._offset(end_line, end_column))

    def _offset(self, line: int, column: int) -> int:
        line = min(line, len(self.document.starts)) - 1
        return self.document.offset_of_bytes(line, column)

    def scope_of(self, node: ast.AST) -> Scope:
        """The scope that a node runs in; for a definition, the one that holds it."""
        at = self.parents.get(node)
        while at is not None:
            if at[0] in self.scopes and at[1] in {"body", "orelse"}:
                return self.scopes[at[0]]
            at = self.parents.get(at[0])
        return self.scope

    def statement(self, node: ast.AST) -> ast.stmt:
        """The statement that a node is a part of."""
        while not isinstance(node, ast.stmt) and node in self.parents:
            node = self.parents[node][0]
        assert isinstance(node, ast.stmt)
        return node

    def ancestors(self, node: ast.AST) -> Iterator[Block]:
        """The nodes around a node, from the inside, each with the field that holds it; up to the function's end."""
        at = self.parents.get(node)
        while at is not None:
            yield at
            if at[0] in self.scopes:
                return
            at = self.parents.get(at[0])

    def of(self, kind: type[Node]) -> list[Node]:
        return self.nodes.get(kind, [])  # type: ignore[return-value]

    def before(self, node: ast.AST, other: ast.AST) -> bool:
        """Whether ``node`` begins before ``other`` in the text."""
        return place(node) < place(other)


def place(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def dotted(node: ast.AST) -> list[str] | None:
    """``a.b.c`` as its parts."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return [node.id, *reversed(parts)]


def last_name(node: ast.AST) -> str:
    """``c`` of ``a.b.c``, of ``a.b.c(…)``, and of ``a["c"]``."""
    if isinstance(node, ast.Call):
        return last_name(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)
    return node.id if isinstance(node, ast.Name) else ""


def same(one: ast.AST | None, other: ast.AST | None) -> bool:
    """Whether two expressions are written alike: in one function, the same object."""
    return one is not None and other is not None and ast.unparse(one) == ast.unparse(other)


def full_name(module: Module, scope: Scope | None, node: ast.AST, depth: int = 0) -> str:
    """The full name of ``dist.barrier`` through imports and aliases; "" if it does not come from an import."""
    parts = dotted(node)
    if parts is None or depth > 5:
        return ""
    head = parts[0]
    if head in module.imports:
        at: Scope | None = scope
        while at is not None and at.parent is not None:  # a local variable hides an import of the module
            if head in at.all_parameters:
                return ""
            at = at.parent
        return ".".join([module.imports[head], *parts[1:]])
    known = module.scope.definitions.get(head, [])
    if len(known) == 1 and not known[0].item and not known[0].path and known[0].value is not None:
        alias = known[0].value
        if isinstance(alias, (ast.Name, ast.Attribute)):
            full = full_name(module, module.scope, alias, depth + 1)
            return ".".join([full, *parts[1:]]) if full else ""
    return ""


def default_of(scope: Scope, name: str) -> ast.expr | None:
    """The default value of a function's parameter."""
    if not isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        return None
    arguments = scope.node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    for argument, default in zip(reversed(positional), reversed(arguments.defaults), strict=False):
        if argument.arg == name:
            return default
    for argument, given in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=False):
        if argument.arg == name:
            return given
    return None


def identifiers(node: ast.AST) -> set[str]:
    """All names and attributes in an expression."""
    found: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            found.add(part.id)
        elif isinstance(part, ast.Attribute):
            found.add(part.attr)
    return found


def torch_last(call: Call) -> str:
    """The last part of the full name of what is called: ``DistributedDataParallel`` for an alias ``DDP``."""
    return call.name.rpartition(".")[2]
