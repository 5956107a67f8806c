"""The text of a Python file → ``Module``: its tree is walked once."""

from __future__ import annotations

import ast
import warnings

from rankup.check.document import Document
from rankup.check.facts.program.module import Call, Definition, Module, Scope, full_name
from rankup.check.facts.program.names import words

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
#: Fields that hold no nodes, or none that anybody asks for.
_NO_NODES = words(
    """
    ctx op ops id attr type_comment name kind level module arg is_async conversion type_ignores simple asname names
    """
)


_KEPT: set[type[ast.AST]] = {
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.Subscript,
    ast.Compare,
    ast.Attribute,
    ast.With,
    ast.IfExp,
    ast.Assign,
    ast.AugAssign,
    ast.BinOp,
    ast.Return,
    ast.Dict,
    ast.JoinedStr,
    ast.AnnAssign,
}
_PLAIN: set[type[ast.AST]] = {
    ast.Name,
    ast.keyword,
    ast.arg,
    ast.arguments,
    ast.Expr,
    ast.Tuple,
    ast.List,
    ast.alias,
}
_DEFINING: set[type[ast.AST]] = {
    ast.Assign,
    ast.AnnAssign,
    ast.AugAssign,
    ast.NamedExpr,
    ast.For,
    ast.AsyncFor,
    ast.comprehension,
    ast.With,
    ast.AsyncWith,
    ast.ExceptHandler,
}


def parse(document: Document) -> ast.Module:
    """The tree of a text. Raises SyntaxError, and what else ``ast`` raises for odd texts.

    A carriage return of its own ends a line for Python and for nobody else, so it becomes a blank.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(document.text.replace("\r", " "))


def read_module(document: Document, tree: ast.Module, name: str = "", package: bool = False) -> Module:
    """Walks the tree once. Iterative: generated programs may be nested deeper than Python's own stack."""
    module = Module(document, name, tree, package)
    module.scopes[tree] = Scope(tree, module, None, "")
    parents = module.parents
    stack: list[tuple[ast.AST, Scope]] = [(tree, module.scopes[tree])]
    while stack:
        node, scope = stack.pop()
        inner = _note(node, scope, module)
        children: list[tuple[ast.AST, Scope]] = []
        for name_of_field in _fields(type(node)):
            value = getattr(node, name_of_field, None)
            if value is None:
                continue
            of = inner if name_of_field == "body" else scope
            if isinstance(value, list):
                block = (node, name_of_field)
                for item in value:
                    if isinstance(item, ast.AST):
                        parents[item] = block
                        if type(item) is not ast.Name:
                            children.append((item, of))
            elif isinstance(value, ast.AST):
                parents[value] = (node, name_of_field)
                if type(value) is not ast.Name:  # the most frequent node: it has nothing inside
                    children.append((value, of))
        children.reverse()
        stack += children
    for call in module.calls:
        call.name = full_name(module, call.scope, call.node.func)
    return module


_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {}


def _fields(kind: type[ast.AST]) -> tuple[str, ...]:
    """The fields of a kind of node that can hold nodes worth a visit."""
    if kind not in _FIELDS:
        _FIELDS[kind] = tuple(name for name in kind._fields if name not in _NO_NODES)
    return _FIELDS[kind]


def _note(node: ast.AST, scope: Scope, module: Module) -> Scope:
    """Keeps what a node says; returns the scope of its body."""
    kind = type(node)
    if kind in _PLAIN:
        return scope
    if kind in _KEPT:
        module.nodes.setdefault(kind, []).append(node)
    if isinstance(node, _SCOPES):
        name = getattr(node, "name", "<lambda>")
        inner = Scope(node, module, scope, name)
        module.scopes[node] = inner
        if not isinstance(node, ast.Lambda):
            scope.functions[name] = inner
        return inner
    if isinstance(node, ast.Call):
        call = Call(node, module, scope)
        module.calls.append(call)
        scope.calls.append(call)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            module.texts.add(node.value)
            if "://" in node.value:
                module.addresses.append(node)
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        _note_import(node, module)
    elif isinstance(node, ast.Return):
        scope.returns.append(node.value or ast.Constant(None))
    elif isinstance(node, (ast.Global, ast.Nonlocal)):
        scope.outer.update(node.names)
    elif kind in _DEFINING:
        _note_definitions(node, scope)
    return scope


def _note_import(node: ast.Import | ast.ImportFrom, module: Module) -> None:
    if isinstance(node, ast.Import):
        for alias in node.names:
            module.imports.setdefault(
                alias.asname or alias.name.partition(".")[0],
                alias.name if alias.asname else alias.name.partition(".")[0],
            )
            module.imported.append((alias.name, 0, ()))
        return
    origin = "." * node.level + (node.module or "")
    for alias in node.names:
        full = f"{origin}.{alias.name}" if node.module else f"{origin}{alias.name}"
        module.imports.setdefault(alias.asname or alias.name, full)
    module.imported.append((node.module or "", node.level, tuple(alias.name for alias in node.names)))


def _note_definitions(node: ast.AST, scope: Scope) -> None:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            _define(target, node, node.value, (), scope)
    elif isinstance(node, ast.AnnAssign):
        if node.value is not None:
            _define(node.target, node, node.value, (), scope)
    elif isinstance(node, ast.NamedExpr):
        _define(node.target, node, node.value, (), scope)
    elif isinstance(node, ast.AugAssign):
        changed = ast.BinOp(node.target, node.op, node.value)
        _define(node.target, node, changed, (), scope)
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        _define(node.target, node, node.iter, (), scope, item=True)
    elif isinstance(node, ast.comprehension):
        _define(node.target, node.iter, node.iter, (), scope, item=True)
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        for item in node.items:
            if item.optional_vars is not None:
                _define(item.optional_vars, node, item.context_expr, (), scope)
    elif isinstance(node, ast.ExceptHandler) and node.name:
        scope.definitions.setdefault(node.name, []).append(Definition(node.name, node, None))


def _define(
    target: ast.expr,
    at: ast.AST,
    value: ast.expr | None,
    path: tuple[int, ...],
    scope: Scope,
    item: bool = False,
) -> None:
    if isinstance(target, ast.Name):
        scope.definitions.setdefault(target.id, []).append(Definition(target.id, at, value, path, item))
    elif isinstance(target, (ast.Tuple, ast.List)):
        starred = any(isinstance(part, ast.Starred) for part in target.elts)
        for index, part in enumerate(target.elts):
            _define(part, at, None if starred else value, (*path, index), scope, item)
    elif isinstance(target, ast.Starred):
        _define(target.value, at, None, (), scope)
    elif isinstance(target, ast.Attribute):
        name = "." + target.attr
        scope.definitions.setdefault(name, []).append(Definition(name, at, value, path, item))
    elif isinstance(target, ast.Subscript):
        key = target.slice
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            name = "." + key.value
            scope.definitions.setdefault(name, []).append(Definition(name, at, value, path, item))
