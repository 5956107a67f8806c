"""Assignments, redirections and simple commands of a shell script, as the syntax tree has them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from rankup.check.document import Span
from rankup.check.facts.job.commands import EMPTY, Binding, Redirect, Value
from rankup.check.facts.job.printing import all_printed
from rankup.check.facts.job.scope import ScopeKeeper
from rankup.check.facts.job.source import Source
from rankup.check.facts.job.words import WordReader, array

_NAME = re.compile(r"[A-Za-z_]\w*\Z")
_BLANK = Value(tuple(Source.of_document(" ").literal(" ", 0, 1, False)))
_ASSIGNED = re.compile(
    r"(?:^|[\s;(])(\w+)(?:\[[^\]\n]*\])?\+?=|\(\(\s*(\w+)\s*[-+*/]?[=+-]|\bread\s+(?:-\w+\s+)*(\w+)"
)


class SimpleReader(ScopeKeeper):
    """Reads what has no statements inside. ``start`` says what a command does: ``job_runner``."""

    def visit(self, node: Any, source: Source) -> None:
        raise NotImplementedError

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
            first = len(self.commands)
            self.visit(body, source)
            self.keep(all_printed(self.commands[first:]), redirects)
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

    def keep(self, content: Value | None, redirects: tuple[Redirect, ...]) -> None:
        """Remembers what is written to files: text, or None if nobody knows it."""
        raise NotImplementedError

    def start(
        self,
        argv: tuple[Value, ...],
        span: Span,
        environment: tuple[tuple[str, Binding], ...] = (),
        redirects: tuple[Redirect, ...] = (),
        heredoc: Value | None = None,
    ) -> None:
        raise NotImplementedError
