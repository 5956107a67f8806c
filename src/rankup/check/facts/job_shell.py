"""Walks a shell script's syntax tree as a shell would: variables, functions, files it writes, and what starts what."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import tree_sitter
import tree_sitter_bash

from rankup.check.document import Span
from rankup.check.facts.job_commands import Binding, Command, Redirect, Shell
from rankup.check.facts.job_source import Source
from rankup.check.facts.job_values import EMPTY, Output, Value, Variable
from rankup.check.facts.job_words import WordReader, array, fields, requoted

_DEEPEST = 60  # nested statements
_MOST_COMMANDS = 1500  # functions that call functions end here
_ASSIGNED = re.compile(
    r"(?:^|[\s;(])(\w+)(?:\[[^\]\n]*\])?\+?=|\(\(\s*(\w+)\s*[-+*/]?[=+-]|\bread\s+(?:-\w+\s+)*(\w+)"
)
_NAME = re.compile(r"[A-Za-z_]\w*\Z")


@cache
def _parser() -> tree_sitter.Parser:
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


@dataclass
class State:
    """What holds at one place of the script."""

    shell: Shell
    scope: dict[str, Binding] = field(default_factory=dict)
    folder: str | None = ""
    conditional: bool = False
    in_loop: bool = False
    background: bool = False
    in_output: bool = False
    function: str = ""
    parent: Command | None = None
    pipe: tuple[str, ...] = ()
    pipefail: bool = False
    exits_on_error: bool = False
    export_all: bool = False


@dataclass(frozen=True)
class Function:
    body: Any  # a node of the syntax tree
    source: Source


class ShellReader:
    """Reads statements; what a simple command does is for ``job_runner``."""

    def __init__(self) -> None:
        self.state = State(Shell())
        self.commands: list[Command] = []
        self.functions: dict[str, Function] = {}
        self.assigned: dict[str, list[Binding]] = {}
        self.expansions: list[Variable] = []
        self.tested: set[str] = set()  # variables that a condition looks at
        self.broken = False
        self.first_command: int | None = None
        self.depth = 0

    # ---- for words

    def variable(
        self, name: str, span: Span, operator: str, default: Value | None, index: str | None, quoted: bool
    ) -> Value:
        binding = self.state.scope.get(name)
        if binding is not None and binding.certain and operator in ("", ":-", "-", ":=", "=", ":?", "?"):
            value = _element(binding.value, index)
            if value is not None and len(value.atoms) < 200:
                return value if quoted and index == "@" else requoted(value, quoted)
        unknown = Variable(
            name + (f"[{index}]" if index else ""), span, self.state.shell, operator, default, quoted
        )
        self.expansions.append(unknown)
        return Value((unknown,))

    def output(self, source: Source, start: int, end: int, span: Span, quoted: bool) -> Value:
        inner = Value(tuple(source.literal(source.text[start:end], start, end, True)))
        first = len(self.commands)
        if self.depth < _DEEPEST // 3:
            with self.changed(in_output=True, background=False, pipe=(), parent=None), self.own_scope():
                self.text(inner)
        return Value(
            (Output(source.text[start:end], span, self.state.shell, tuple(self.commands[first:]), quoted),)
        )

    # ---- state

    @contextmanager
    def changed(self, **changes: Any) -> Iterator[None]:
        before = self.state
        self.state = replace(before, **changes)
        yield
        before.folder = self.state.folder if self.state.shell is before.shell else before.folder
        before.scope = self.state.scope if self.state.shell is before.shell else before.scope
        self.state = before

    @contextmanager
    def own_scope(self) -> Iterator[None]:
        """A subshell: its assignments and its cd are gone afterwards."""
        scope, folder = self.state.scope, self.state.folder
        self.state.scope = dict(scope)
        yield
        self.state.scope, self.state.folder = scope, folder

    @contextmanager
    def branch(self) -> Iterator[None]:
        """Commands that may or may not run: what they assign is not certain afterwards."""
        before, conditional = dict(self.state.scope), self.state.conditional
        self.state.conditional = True
        yield
        self.state.conditional = conditional
        for name, binding in self.state.scope.items():
            if before.get(name) is not binding:
                self.state.scope[name] = replace(binding, certain=False)
        for name in before.keys() - self.state.scope.keys():
            self.state.scope[name] = replace(before[name], certain=False)

    def bind(
        self, name: str, value: Value, span: Span, *, certain: bool = True, export: bool = False
    ) -> None:
        before = self.state.scope.get(name)
        exported = export or self.state.export_all or (before is not None and before.exported)
        binding = Binding(value, span, exported, certain)
        self.state.scope[name] = binding
        self.assigned.setdefault(name, []).append(binding)

    # ---- texts

    def text(self, value: Value) -> None:
        """Reads a text as a shell does."""
        self.source(Source.of_value(value))

    def source(self, source: Source) -> Any:
        """Reads a source; returns the root of its syntax tree."""
        if self.depth >= _DEEPEST:
            self.broken = True
            return None
        root = _parser().parse(source.ascii_text.encode()).root_node
        self.visit(root, source)
        return root

    # ---- statements

    def visit(self, node: Any, source: Source) -> None:
        if self.depth >= _DEEPEST or len(self.commands) >= _MOST_COMMANDS:
            self.broken = True
            return
        kind = node.type
        if self.first_command is None and self.depth and kind not in ("comment", "program", "ERROR"):
            self.first_command = node.start_byte
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
        for child in node.children:
            if child.type in ("&&", "||"):
                operator = child.type
            elif child.is_named:
                if operator == "||":
                    with self.branch():
                        self.visit(child, source)
                else:
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
        for index, argument in enumerate(arguments[:9], 1):
            self.state.scope[str(index)] = Binding(argument, argument.span)
        self.state.scope["@"] = Binding(array(list(arguments)), Span(0, 0))
        with self.changed(function=name, pipe=()):
            self.visit(function.body, function.source)
        for key, binding in before.items():
            if binding is None:
                self.state.scope.pop(key, None)
            else:
                self.state.scope[key] = binding
        self.functions.setdefault(name, function)

    # ---- assignments

    def _variable_assignment(self, node: Any, source: Source, *, export: bool = False) -> None:
        name, value = self._assignment(node, source)
        if name:
            self.bind(name, value, source.span(node.start_byte, node.end_byte), export=export)

    def _assignment(self, node: Any, source: Source) -> tuple[str, Value]:
        target, right = node.child_by_field_name("name"), node.child_by_field_name("value")
        if target is None:
            return "", EMPTY
        reader = WordReader(source, self)
        name = source.text[target.start_byte : target.end_byte]
        if "[" in name:  # an element of an array: the array is not known any more
            name = name.partition("[")[0]
            if right is not None:
                reader.value(right.start_byte, right.end_byte)
            self._unknown(name, node, source)
            return "", EMPTY
        if right is None:
            value = EMPTY
        elif right.type == "array":
            words = [
                word
                for child in right.children
                if child.is_named and child.type != "comment"
                for word in reader.word(child.start_byte, child.end_byte)
            ]
            value = array(words)
        else:
            value = reader.value(right.start_byte, right.end_byte)
        if any(child.type == "+=" for child in node.children):
            before = self.state.scope.get(name)
            if before is not None and not before.certain:
                self._unknown(name, node, source)
                return "", EMPTY
            if before is not None:
                glue = Value() if right is None or right.type != "array" else _BLANK
                value = Value((*before.value.atoms, *glue.atoms, *value.atoms))
        return name, value

    def _variable_assignments(self, node: Any, source: Source) -> None:
        for child in node.children:
            if child.type == "variable_assignment":
                self._variable_assignment(child, source)

    def _declaration_command(self, node: Any, source: Source) -> None:
        words = [source.text[child.start_byte : child.end_byte] for child in node.children]
        export = words[0] == "export" or any(re.match(r"-\w*x", word) for word in words[1:])
        for child, word in zip(node.children, words, strict=True):
            if child.type == "variable_assignment":
                self._variable_assignment(child, source, export=export)
            elif child.type == "variable_name" and export:
                binding = self.state.scope.get(word)
                if binding is not None:
                    self.state.scope[word] = replace(binding, exported=True)
                    self.assigned[word][-1:] = [self.state.scope[word]]

    def _unset_command(self, node: Any, source: Source) -> None:
        for child in node.children:
            if child.type == "variable_name":
                self.state.scope.pop(source.text[child.start_byte : child.end_byte], None)

    def _unknown(self, name: str, node: Any, source: Source) -> None:
        """Something is assigned that nobody knows."""
        if _NAME.match(name):
            self.bind(name, EMPTY, source.span(node.start_byte, node.end_byte), certain=False)

    def _assigned_in(self, node: Any, source: Source) -> None:
        """What a loop's body assigns is not known when the body begins: it may not be the first time."""
        for match in _ASSIGNED.finditer(source.text, node.start_byte, node.end_byte):
            name = match.group(1) or match.group(2) or match.group(3)
            if name in self.state.scope or match.group(2) or match.group(3):
                self._unknown(name, node, source)

    def _tested_in(self, node: Any, source: Source) -> None:
        text = source.text[node.start_byte : node.end_byte]
        self.tested.update(re.findall(r"\$\{?(\w+)", text))
        self.tested.update(re.findall(r"-v\s+(\w+)", text))

    # ---- commands

    def _redirected_statement(self, node: Any, source: Source) -> None:
        body = node.child_by_field_name("body")
        redirects, heredoc, extra, others = self._redirects(node, source)
        if body is not None and body.type in ("command", "negated_command"):
            self._simple(body, source, redirects, heredoc, extra)
        elif body is not None:
            self.visit(body, source)
        for other in others:
            self.visit(other, source)

    def _redirects(
        self, node: Any, source: Source
    ) -> tuple[tuple[Redirect, ...], Value | None, list[Value], list[Any]]:
        reader = WordReader(source, self)
        redirects: list[Redirect] = []
        extra: list[Value] = []
        others: list[Any] = []
        heredoc: Value | None = None
        pending = [child for child in node.children if child.type.endswith("_redirect")]
        for child in pending:
            if child.type == "heredoc_redirect":
                for part in child.children:
                    if part.type == "file_redirect":
                        pending.append(part)
                    elif part.type == "heredoc_body":
                        heredoc = self._heredoc(child, part, source)
                    elif part.is_named and not part.type.startswith(("heredoc", "file_descriptor")):
                        others.append(part)
                continue
            if child.type != "file_redirect":
                continue
            operator = "".join(
                source.text[part.start_byte : part.end_byte]
                for part in child.children
                if not part.is_named or part.type == "file_descriptor"
            )
            words = [part for part in child.children if part.is_named and part.type != "file_descriptor"]
            for position, part in enumerate(words):
                for word in reader.word(part.start_byte, part.end_byte)[: None if position else 1]:
                    if position:  # a command's word after a redirection
                        extra.append(word)
                    else:
                        span = source.span(child.start_byte, part.end_byte)
                        redirects.append(Redirect(operator, word, span))
        return tuple(redirects), heredoc, extra, others

    def _heredoc(self, redirect: Any, body: Any, source: Source) -> Value:
        start = next((part for part in redirect.children if part.type == "heredoc_start"), None)
        raw = start is not None and source.text[start.start_byte : start.start_byte + 1] in ("'", '"', "\\")
        if raw:
            text = source.text[body.start_byte : body.end_byte]
            return Value(tuple(source.literal(text, body.start_byte, body.end_byte, True)))
        return WordReader(source, self).heredoc(body.start_byte, body.end_byte)

    def _command(self, node: Any, source: Source) -> None:
        self._simple(node, source, (), None, [])

    def _simple(
        self,
        node: Any,
        source: Source,
        redirects: tuple[Redirect, ...],
        heredoc: Value | None,
        extra: list[Value],
    ) -> None:
        if node.type == "negated_command":
            node = node.named_children[0] if node.named_children else node
        reader = WordReader(source, self)
        argv: list[Value] = []
        environment: list[tuple[str, Binding]] = []
        for child in node.children:
            if child.type == "variable_assignment":
                name, value = self._assignment(child, source)
                environment.append(
                    (name, Binding(value, source.span(child.start_byte, child.end_byte), True))
                )
            elif child.type.endswith("_redirect"):
                continue
            elif child.is_named and child.type != "comment":
                argv += reader.word(child.start_byte, child.end_byte)
        if not argv and not environment:
            return
        end = node.end_byte
        span = source.span(node.start_byte, end)
        self.start((*argv, *extra), span, tuple(environment), redirects, heredoc)

    def start(
        self,
        argv: tuple[Value, ...],
        span: Span,
        environment: tuple[tuple[str, Binding], ...] = (),
        redirects: tuple[Redirect, ...] = (),
        heredoc: Value | None = None,
    ) -> None:
        raise NotImplementedError


_BLANK = Value(tuple(Source.of_document(" ").literal(" ", 0, 1, False)))
_ANY = re.compile(r"[^\\\"$`']+")


def _element(value: Value, index: str | None) -> Value | None:
    """An array's element, or all of it."""
    if index in (None, "@", "*"):
        if index is None:
            words = fields(list(value.atoms))
            if len(words) > 1 and any(not getattr(atom, "quoted", True) for atom in value.atoms):
                return words[0]  # $array is its first element
        return value
    words = fields(list(value.atoms))
    if len(words) == 1 and any(isinstance(atom, Output) for atom in words[0].atoms):
        return words[0] if index == "0" else None
    if index is not None and index.isdigit() and int(index) < len(words):
        return words[int(index)]
    return None


def _leading_name(node: Any, source: Source) -> str:
    """The name of the first command in a statement, from its text."""
    while node is not None and node.type not in ("command", "test_command"):
        children = [child for child in node.children if child.is_named]
        node = children[0] if children else None
    if node is None:
        return ""
    name = node.child_by_field_name("name")
    return source.text[name.start_byte : name.end_byte].rpartition("/")[2] if name is not None else ""
