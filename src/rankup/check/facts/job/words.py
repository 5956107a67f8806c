"""Words of bash: quotes, escapes and expansions of a part of a ``Source`` → ``Value``s."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol

from rankup.check.document import Span
from rankup.check.facts.job.commands import EMPTY, Arithmetic, Atom, Literal, Value
from rankup.check.facts.job.source import Source

_LIMIT = 500  # atoms of one value: a variable that doubles itself ends here
_PLAIN = re.compile(r"[^\\'\"$`]+")
_IN_QUOTES = re.compile(r"[^\\\"$`]+")
_IN_HEREDOC = re.compile(r"[^\\$`]+")
_NAME = re.compile(r"\$(?:(\w+)|([@*#?$!-]))")
_BRACED = re.compile(r"([#!]?)(\w+|[@*#?$!-])?(?:\[([^\]]*)\])?(.*)\Z", re.S)
_ARITHMETIC_NAME = re.compile(r"\$?(?:\{(\w+)\}|([A-Za-z_]\w*))")


class Expander(Protocol):
    """What a word needs to know of the shell that reads it."""

    def variable(
        self, name: str, span: Span, operator: str, default: Value | None, index: str | None, quoted: bool
    ) -> Value: ...

    def output(self, source: Source, start: int, end: int, span: Span, quoted: bool) -> Value: ...

    def branch(self) -> AbstractContextManager[None]: ...


class WordReader:
    """Reads words of one source."""

    def __init__(self, source: Source, expander: Expander) -> None:
        self.source = source
        self.text = source.text
        self.expander = expander

    def word(self, start: int, end: int) -> list[Value]:
        """The fields that a word becomes: usually one; none or several after an expansion without quotes."""
        return fields(self.atoms(start, end, _PLAIN, 0))

    def value(self, start: int, end: int) -> Value:
        """The value of an assignment's right side: one, whatever it holds."""
        return Value(tuple(replace(atom, quoted=True) for atom in self.atoms(start, end, _PLAIN, 0)))

    def heredoc(self, start: int, end: int) -> Value:
        return Value(tuple(self.atoms(start, end, _IN_HEREDOC, 0)))

    def atoms(self, start: int, end: int, plain: re.Pattern[str], depth: int) -> list[Atom]:
        """The atoms of a part of the text. ``plain`` says what needs no look: it tells which quotes it is in."""
        text, position = self.text, start
        found: list[Atom] = []
        in_quotes = plain is not _PLAIN
        while position < end and len(found) < _LIMIT:
            match = plain.match(text, position, end)
            if match:
                found += self.source.literal(match.group(), position, match.end(), True)
                position = match.end()
                continue
            character = text[position]
            if character == "\\":
                position = self._escaped(found, position, end, in_quotes, plain is _IN_HEREDOC)
            elif character == "'":
                close = text.find("'", position + 1, end)
                close = end if close < 0 else close
                found += self.source.literal(text[position + 1 : close], position + 1, close, True)
                position = close + 1
            elif character == '"':
                close = _closing_quote(text, position + 1, end)
                inner = self.atoms(position + 1, close, _IN_QUOTES, depth + 1) if depth < 20 else []
                found += inner or [Literal("", self.source.span(position, close + 1), True)]
                position = close + 1
            else:
                position = self._expansion(found, position, end, in_quotes, depth)
        return found

    def _escaped(self, found: list[Atom], position: int, end: int, in_quotes: bool, heredoc: bool) -> int:
        following = self.text[position + 1 : min(position + 2, end)]
        if following == "\n":
            return position + 2
        special = '$`"\\' if not heredoc else "$`\\"
        if in_quotes and following not in special:
            following = "\\" + following
        found += self.source.literal(following, position, position + 2, True)
        return position + 2

    def _expansion(self, found: list[Atom], position: int, end: int, quoted: bool, depth: int) -> int:
        """Reads what begins with ``$`` or a backquote; returns where it ends."""
        text = self.text
        span = self.source.span
        if text[position] == "`":
            close = text.find("`", position + 1, end)
            close = end if close < 0 else close
            here = span(position, min(close + 1, end))
            found += self.expander.output(self.source, position + 1, close, here, quoted).atoms
            return close + 1
        following = text[position + 1 : position + 3]
        if following == "((":
            close = _closing(text, position + 1, end, "(", ")")
            if _closing(text, position + 2, end, "(", ")") == close - 1:
                here = span(position, close + 1)
                found.append(self._arithmetic(position + 3, close - 1, here, quoted))
                return close + 1
        if following[:1] == "(":
            close = _closing(text, position + 1, end, "(", ")")
            here = span(position, min(close + 1, end))
            found += self.expander.output(self.source, position + 2, close, here, quoted).atoms
            return close + 1
        if following[:1] == "{":
            close = _closing(text, position + 1, end, "{", "}")
            found += self._braced(position, close, quoted, depth)
            return close + 1
        if following[:1] == "'" and not quoted:
            close = text.find("'", position + 2, end)
            close = end if close < 0 else close
            found += self.source.literal(text[position + 2 : close], position + 2, close, True)
            return close + 1
        match = _NAME.match(text, position, end)
        if match is None:
            found += self.source.literal("$", position, position + 1, True)
            return position + 1
        name = match.group(1) or match.group(2)
        if name[0].isdigit():
            name = name[0]
        here = span(position, position + 1 + len(name))
        found += self.expander.variable(name, here, "", None, None, quoted).atoms
        return position + 1 + len(name)

    def _braced(self, position: int, close: int, quoted: bool, depth: int) -> tuple[Atom, ...]:
        match = _BRACED.match(self.text, position + 2, close)
        if match is None or not match.group(2):
            return ()
        prefix, name, index, rest = match.groups()
        here = self.source.span(position, close + 1)
        operator, default = "", None
        if prefix:
            operator = prefix + ("[]" if index else "")
        elif rest:
            operator = rest[:2] if rest[:2] in (":-", ":=", ":+", ":?", "##", "%%", "//") else rest[:1]
            if operator.lstrip(":") in ("-", "=", "+") and depth < 20:
                start = match.start(4) + len(operator)
                with self.expander.branch():
                    default = Value(tuple(self.atoms(start, close, _PLAIN, depth + 1)))
        return self.expander.variable(name, here, operator, default, index, quoted).atoms

    def _arithmetic(self, start: int, end: int, span: Span, quoted: bool) -> Arithmetic:
        tokens: list[str | Value] = []
        position = start
        for match in _ARITHMETIC_NAME.finditer(self.text, start, end):
            tokens += self._plain_tokens(position, match.start())
            name = match.group(1) or match.group(2)
            here = self.source.span(*match.span())
            tokens.append(self.expander.variable(name, here, "", None, None, True))
            position = match.end()
        tokens += self._plain_tokens(position, end)
        return Arithmetic(tuple(tokens), span, quoted)

    def _plain_tokens(self, start: int, end: int) -> list[str | Value]:
        atoms = self.source.literal(self.text[start:end], start, end, True)
        return [atom.text if isinstance(atom, Literal) else Value((atom,)) for atom in atoms]


def fields(atoms: list[Atom]) -> list[Value]:
    """Splits at blanks that came from an expansion without quotes."""
    done: list[Value] = []
    current: list[Atom] = []
    begun = False
    for atom in atoms:
        if not isinstance(atom, Literal) or atom.quoted:
            current.append(atom)
            begun = True
            continue
        position = 0
        for match in re.finditer(r"\S+|\s+", atom.text):
            position = match.start()
            if match.group().isspace():
                if begun:
                    done.append(Value(tuple(current)))
                current, begun = [], False
            else:
                current.append(atom.part(position, match.end()))
                begun = True
    if begun:
        done.append(Value(tuple(current)))
    return done


def without_ambiguity(text: str) -> str:
    """``text``, with a word in place of what is in brackets in ``$((…) …)``: the grammar takes it for arithmetic."""
    for match in re.finditer(r"\$\(\(", text):
        start, end = match.start() + 2, len(text)
        close = _closing(text, start, end, "(", ")")
        if close < end and _closing(text, start - 1, end, "(", ")") != close + 1:
            text = text[:start] + "_" * (close + 1 - start) + text[close + 1 :]
    return text


def requoted(value: Value, quoted: bool) -> Value:
    return Value(tuple(replace(atom, quoted=quoted) for atom in value.atoms))


def array(words: list[Value]) -> Value:
    """An array as a value: its elements, with blanks between them that split it again."""
    atoms: list[Atom] = []
    for word in words:
        if atoms:
            atoms.append(Literal(" ", Span(word.span.start, word.span.start)))
        atoms += requoted(word, True).atoms or EMPTY.atoms
    return Value(tuple(atoms))


def _closing_quote(text: str, position: int, end: int) -> int:
    """Where a double-quoted text ends: its quote, those in ``$(…)`` and ``${…}`` left out."""
    while position < end:
        character = text[position]
        if character == "\\":
            position += 2
        elif character == '"':
            return position
        elif character == "$" and text[position + 1 : position + 2] == "(":
            position = _closing(text, position + 1, end, "(", ")") + 1
        elif character == "$" and text[position + 1 : position + 2] == "{":
            position = _closing(text, position + 1, end, "{", "}") + 1
        elif character == "`":
            close = text.find("`", position + 1, end)
            position = end if close < 0 else close + 1
        else:
            position += 1
    return end


def _closing(text: str, position: int, end: int, opening: str, closing: str) -> int:
    """Where the bracket at ``position`` is closed; quotes inside are skipped. ``end`` if it is not closed."""
    depth = 0
    while position < end:
        character = text[position]
        if character == "\\":
            position += 1
        elif character == "'":
            close = text.find("'", position + 1, end)
            position = end if close < 0 else close
        elif character == '"':
            position += 1
            while position < end and text[position] != '"':
                position += 2 if text[position] == "\\" else 1
        elif character == opening:
            depth += 1
        elif character == closing:
            depth -= 1
            if depth == 0:
                return position
        position += 1
    return end
