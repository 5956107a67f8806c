"""Walks a shell script's syntax tree as a shell would: variables, functions, files it writes, and what starts what."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from typing import Any

import tree_sitter
import tree_sitter_bash

from rankup.check.document import Span
from rankup.check.facts.job.commands import Binding, Value
from rankup.check.facts.job.scope import DEEPEST
from rankup.check.facts.job.simple import SimpleReader
from rankup.check.facts.job.source import Source
from rankup.check.facts.job.words import WordReader, array, without_ambiguity

_MOST_COMMANDS = 1500  # functions that call functions end here


@cache
def _parser() -> tree_sitter.Parser:
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


@dataclass(frozen=True)
class Function:
    body: Any  # a node of the syntax tree
    source: Source


class ShellReader(SimpleReader):
    """Reads statements; what a simple command does is for ``job_runner``."""

    def __init__(self) -> None:
        super().__init__()
        self.functions: dict[str, Function] = {}
        self.files: dict[str, Value] = {}  # what the script writes by a here-document
        self.sources_files = False
        self.broken = False

    # ---- texts

    def text(self, value: Value) -> None:
        """Reads a text as a shell does."""
        self.source(Source.of_value(value))

    def source(self, source: Source) -> Any:
        """Reads a source; returns the root of its syntax tree."""
        if self.depth >= DEEPEST:
            self.broken = True
            return None
        root = _parser().parse(without_ambiguity(source.ascii_text).encode()).root_node
        self.visit(root, source)
        return root

    def include(self, script: Value) -> bool:
        """Reads a shell script of another file as a part of this one. Whether it is there."""
        raise NotImplementedError

    def not_found(self, script: Value) -> None:
        """Notes a script that was not read."""
        raise NotImplementedError

    # ---- statements

    def visit(self, node: Any, source: Source) -> None:
        if self.depth >= DEEPEST or len(self.commands) >= _MOST_COMMANDS:
            self.broken = True
            return
        kind = node.type
        self.depth += 1
        try:
            method = getattr(self, f"_{kind}", None)
            if method is not None:
                method(node, source)
        finally:
            self.depth -= 1

    def block(self, children: Sequence[Any], source: Source) -> None:
        """Statements in a row; one before ``&`` runs in the background."""
        for index, child in enumerate(children):
            if not child.is_named or child.type == "comment":
                continue
            following = children[index + 1].type if index + 1 < len(children) else ""
            if following == "&":
                with self.changed(background=True), self.own_scope():
                    self.visit(child, source)
            else:
                self.visit(child, source)

    def _program(self, node: Any, source: Source) -> None:
        self.block(node.children, source)

    def _ERROR(self, node: Any, source: Source) -> None:
        self.broken = True
        self.block(node.children, source)

    def _compound_statement(self, node: Any, source: Source) -> None:
        children = node.children
        if children and children[0].type == "((":
            self._assigned_in(node, source)
        else:
            self.block(children, source)

    _do_group = _program
    _negated_command = _program

    def _subshell(self, node: Any, source: Source) -> None:
        with self.own_scope():
            self.block(node.children, source)

    def _list(self, node: Any, source: Source) -> None:
        operator = ""
        for child, after in zip_longest(node.children, node.children[1:]):
            if child.type in ("&&", "||"):
                operator = child.type
            elif child.is_named:
                is_asked = after is not None and after.type in ("&&", "||")
                with (
                    self.answering() if is_asked else nullcontext(),
                    self.branch() if operator == "||" else nullcontext(),
                ):
                    self.visit(child, source)

    def _pipeline(self, node: Any, source: Source) -> None:
        members = [child for child in node.children if child.is_named and child.type != "comment"]
        names = [_leading_name(member, source) for member in members]
        for index, member in enumerate(members):
            with self.changed(pipe=tuple(names[index + 1 :]) + self.state.pipe), self.own_scope():
                self.visit(member, source)

    def _if_statement(self, node: Any, source: Source) -> None:
        body: list[Any] | None = None
        condition: list[Any] = []
        for child in node.children:
            if child.type in ("elif_clause", "else_clause"):
                self._body(body, source)
                body = []
                with self.branch():
                    self.visit(child, source)
            elif child.type == "then":
                with self.answering():
                    self.block(condition, source)
                body = []
            elif body is not None:
                body.append(child)
            else:
                condition.append(child)
        self._body(body, source)

    _elif_clause = _if_statement

    def _body(self, body: list[Any] | None, source: Source) -> None:
        if body:
            with self.branch():
                self.block(body, source)

    def _else_clause(self, node: Any, source: Source) -> None:
        self.block(node.children, source)

    def _for_statement(self, node: Any, source: Source) -> None:
        self._assigned_in(node, source)
        reader = WordReader(source, self)
        for child in node.children:
            if child.type == "do_group":
                with self.changed(in_loop=True):
                    self._body([child], source)
            elif child.type == "variable_name":
                self._unknown(source.text[child.start_byte : child.end_byte], child, source)
            elif child.is_named:
                reader.word(child.start_byte, child.end_byte)

    def _while_statement(self, node: Any, source: Source) -> None:
        self._assigned_in(node, source)
        with self.changed(in_loop=True):
            self._body([child for child in node.children if child.is_named], source)

    def _c_style_for_statement(self, node: Any, source: Source) -> None:
        self._assigned_in(node, source)
        with self.changed(in_loop=True):
            self._body(
                [child for child in node.children if child.type in ("do_group", "compound_statement")], source
            )

    def _case_statement(self, node: Any, source: Source) -> None:
        self._tested_in(node, source)
        for child in node.children:
            if child.type == "case_item":
                children = child.children
                start = next((i for i, part in enumerate(children) if part.type == ")"), -1)
                self._body(list(children[start + 1 :]), source)

    def _test_command(self, node: Any, source: Source) -> None:
        self._tested_in(node, source)
        WordReader(source, self).atoms(node.start_byte, node.end_byte, _ANY, 0)

    def _function_definition(self, node: Any, source: Source) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            self.functions[source.text[name.start_byte : name.end_byte]] = Function(body, source)

    def call(self, name: str, arguments: Sequence[Value]) -> None:
        """A function's body, at the place of its call."""
        function = self.functions.pop(name)  # it is not there while it runs: no recursion
        before = {key: self.state.scope.get(key) for key in (*"123456789", "@")}
        self.parameters(arguments)
        with self.changed(function=name, pipe=()):
            self.visit(function.body, function.source)
        for key, binding in before.items():
            if binding is None:
                self.state.scope.pop(key, None)
            else:
                self.state.scope[key] = binding
        self.functions.setdefault(name, function)

    def parameters(self, words: Sequence[Value]) -> None:
        """``$1`` to ``$9`` and ``"$@"`` are these words, and no others."""
        for index in range(1, 10):
            self.state.scope.pop(str(index), None)
        for index, word in enumerate(words[:9], 1):
            self.state.scope[str(index)] = Binding(word, word.span)
        self.state.scope["@"] = Binding(array(list(words)), Span(0, 0))


_ANY = re.compile(r"[^\\\"$`']+")


def _leading_name(node: Any, source: Source) -> str:
    """The name of the first command in a statement, from its text."""
    while node is not None and node.type not in ("command", "test_command"):
        children = [child for child in node.children if child.is_named]
        node = children[0] if children else None
    if node is None:
        return ""
    name = node.child_by_field_name("name")
    return source.text[name.start_byte : name.end_byte].rpartition("/")[2] if name is not None else ""
