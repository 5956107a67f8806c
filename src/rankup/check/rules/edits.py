"""Edits of Python programs that several rules make."""

from __future__ import annotations

import ast

from rankup.check.document import Span
from rankup.check.facts.program.module import Call, Module
from rankup.check.rule import Edit


def replaced(module: Module, node: ast.AST, text: str) -> Edit:
    return Edit(module.span(node), text)


def indent_of(module: Module, statement: ast.AST) -> str:
    line = module.document.line(line_of(statement) - 1)
    return line[: len(line) - len(line.lstrip())]


def alone(module: Module, statement: ast.AST) -> bool:
    """Whether a statement has its lines for itself: no ``;``, no ``if x: y`` on one line."""
    first = line_of(statement) - 1
    last = last_line(statement) - 1
    span = module.span(statement)
    before = module.document.text[module.document.starts[first] : span.start]
    after = module.document.text[span.end : module.document.starts[last] + len(module.document.line(last))]
    return not before.strip() and (not after.strip() or after.lstrip().startswith("#"))


def surely_before(module: Module, earlier: ast.AST, later: ast.AST) -> bool:
    """Whether a statement has run wherever a later one of the same function runs: no condition is around it alone."""
    return set(module.ancestors(module.statement(earlier))) <= set(module.ancestors(later))


def lines_before(module: Module, statement: ast.AST, *lines: str) -> Edit:
    """New lines before a statement, with its indentation."""
    start = module.document.starts[first_line(statement) - 1]
    indent = indent_of(module, statement)
    return Edit(Span(start, start), "".join(f"{indent}{line}\n" for line in lines))


def first_line(statement: ast.AST) -> int:
    decorators = getattr(statement, "decorator_list", [])
    return min([line_of(statement), *(line_of(d) for d in decorators)])


def line_of(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 1))


def last_line(node: ast.AST) -> int:
    return int(getattr(node, "end_lineno", None) or line_of(node))


def lines_after(module: Module, statement: ast.AST, *lines: str) -> Edit:
    """New lines after a statement, with its indentation."""
    document = module.document
    last = last_line(statement) - 1
    indent = indent_of(module, statement)
    end = document.starts[last] + len(document.line(last))
    return Edit(Span(end, end), "".join(f"\n{indent}{line}" for line in lines))


def removed(module: Module, statement: ast.AST) -> Edit:
    """The statement's lines are taken away."""
    document = module.document
    first = line_of(statement) - 1
    last = last_line(statement) - 1
    end = document.starts[last + 1] if last + 1 < len(document.starts) else len(document.text)
    return Edit(Span(document.starts[first], end), "")


def indented_under(module: Module, statement: ast.AST, head: str) -> Edit:
    """``head:`` before a statement, whose lines are indented."""
    document = module.document
    first = line_of(statement) - 1
    last = last_line(statement) - 1
    indent = indent_of(module, statement)
    lines = [document.line(number) for number in range(first, last + 1)]
    end = document.starts[last] + len(document.line(last))
    body = "\n".join("    " + line if line.strip() else line for line in lines)
    return Edit(Span(document.starts[first], end), f"{indent}{head}\n{body}")


def argument_added(call: Call, text: str) -> Edit:
    """One more argument at the end of a call."""
    parts = [*call.node.args, *(keyword.value for keyword in call.node.keywords)]
    if not parts:
        end = call.span.end - 1
        return Edit(Span(end, end), text)
    last = max((call.module.span(part) for part in parts), key=lambda span: span.end)
    return Edit(Span(last.end, last.end), f", {text}")


def keyword_removed(call: Call, name: str) -> Edit | None:
    """A keyword and its comma are taken away."""
    given = next((k for k in call.node.keywords if k.arg == name), None)
    if given is None:
        return None
    text, span = call.module.document.text, call.module.span(given)
    before = text[: span.start].rstrip()
    if before.endswith(","):
        return Edit(Span(len(before) - 1, span.end), "")
    after = text[span.end :]
    rest = after.lstrip()
    end = span.end + len(after) - len(rest) + 1 if rest.startswith(",") else span.end
    while end < len(text) and text[end] == " ":
        end += 1
    return Edit(Span(span.start, end), "")


def imported(module: Module, name: str) -> list[Edit]:
    """``import name`` at the top, unless the module has it."""
    if module.imports.get(name) == name:
        return []
    for statement in module.tree.body:
        if isinstance(statement, ast.Import) or (
            isinstance(statement, ast.ImportFrom) and statement.module != "__future__"
        ):
            return [lines_before(module, statement, f"import {name}")]
    return []


def name_for(module: Module, full: str) -> str | None:
    """How a module writes a full name with its own imports: ``dist.get_rank`` for ``torch.distributed.get_rank``."""
    best: str | None = None
    for alias, known in module.imports.items():
        if full == known or full.startswith(known + "."):
            text = alias + full[len(known) :]
            if best is None or len(text) < len(best):
                best = text
    return best
