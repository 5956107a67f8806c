"""What a word of a shell script becomes: known text, and atoms whose value only the job will know."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Union

from rankup.check.document import Span

if TYPE_CHECKING:
    from rankup.check.facts.job_commands import Command, Shell

Numbers = Callable[[str], "int | None"]  # a variable's name → its number, if the request says it


@dataclass(frozen=True)
class Literal:
    """Text that stands in the script. ``span`` has its length if it stands there as it is."""

    text: str
    span: Span
    quoted: bool = False

    def part(self, start: int, end: int) -> Literal:
        """A part of the text, with its own span if that is known."""
        span = self.span
        if span.end - span.start == len(self.text):
            span = Span(span.start + start, span.start + end)
        return replace(self, text=self.text[start:end], span=span)


@dataclass(frozen=True)
class Variable:
    """A variable without a known value. ``shell`` is the one that expands it."""

    name: str
    span: Span
    shell: Shell
    operator: str = ""  # of ``${name<operator>rest}``
    default: Value | None = None  # of ``${name:-default}``
    quoted: bool = False


@dataclass(frozen=True)
class Output:
    """``$(…)``. Its commands are known, their output is not."""

    text: str
    span: Span
    shell: Shell
    commands: tuple[Command, ...] = ()
    quoted: bool = False


@dataclass(frozen=True)
class Arithmetic:
    """``$((…))``: numbers, operators and variables."""

    tokens: tuple[str | Value, ...]
    span: Span
    quoted: bool = False


Atom = Union[Literal, Variable, Output, Arithmetic]  # noqa: UP007 - mypy wants it for the forward references


@dataclass(frozen=True)
class Value:
    """A word's value: atoms in a row."""

    atoms: tuple[Atom, ...] = ()

    @property
    def known(self) -> str | None:
        """Its text, if all of it is known."""
        parts = []
        for atom in self.atoms:
            if not isinstance(atom, Literal):
                return None
            parts.append(atom.text)
        return "".join(parts)

    @property
    def text(self) -> str:
        """Its text, with what is unknown as the script writes it."""
        return "".join(_shown(atom) for atom in self.atoms)

    @property
    def span(self) -> Span:
        if not self.atoms:
            return Span(0, 0)
        start, end = self.atoms[0].span.start, self.atoms[0].span.end
        for atom in self.atoms[1:]:  # what a variable holds stands elsewhere
            if end <= atom.span.start <= end + 200:
                end = atom.span.end
        return Span(start, end)

    @property
    def head(self) -> str:
        """The known text that it begins with."""
        parts = []
        for atom in self.atoms:
            if not isinstance(atom, Literal):
                break
            parts.append(atom.text)
        return "".join(parts)

    @property
    def tail(self) -> str:
        """The known text that it ends with."""
        parts = []
        for atom in reversed(self.atoms):
            if not isinstance(atom, Literal):
                break
            parts.append(atom.text)
        return "".join(reversed(parts))

    def after(self, count: int) -> Value:
        """What follows the first ``count`` known characters."""
        atoms: list[Atom] = []
        for atom in self.atoms:
            if count and isinstance(atom, Literal):
                cut = min(count, len(atom.text))
                count -= cut
                if cut < len(atom.text):
                    atoms.append(atom.part(cut, len(atom.text)))
            else:
                atoms.append(atom)
        return Value(tuple(atoms))

    def variables(self) -> Iterator[Variable]:
        """All variables without a known value, also in defaults, arithmetic and ``$(…)``."""
        for atom in self.atoms:
            if isinstance(atom, Variable):
                yield atom
                if atom.default is not None:
                    yield from atom.default.variables()
            elif isinstance(atom, Arithmetic):
                for token in atom.tokens:
                    if isinstance(token, Value):
                        yield from token.variables()
            elif isinstance(atom, Output):
                for command in atom.commands:
                    for word in command.argv:
                        yield from word.variables()

    def outputs(self) -> Iterator[Output]:
        """Each ``$(…)`` in it, also in defaults and in other ``$(…)``."""
        for atom in self.atoms:
            if isinstance(atom, Output):
                yield atom
                for command in atom.commands:
                    for word in command.argv:
                        yield from word.outputs()
            elif isinstance(atom, Variable) and atom.default is not None:
                yield from atom.default.outputs()

    def literals(self) -> Iterator[Literal]:
        for atom in self.atoms:
            if isinstance(atom, Literal):
                yield atom

    def number(self, numbers: Numbers) -> int | None:
        """Its number, if it is one: arithmetic is computed, and ``numbers`` knows the scheduler's variables."""
        atoms = [atom for atom in self.atoms if not isinstance(atom, Literal) or atom.text]
        if all(isinstance(atom, Literal) for atom in atoms):
            text = "".join(atom.text for atom in atoms if isinstance(atom, Literal)).strip()
            return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
        if len(atoms) != 1:
            return None
        atom = atoms[0]
        if isinstance(atom, Variable):
            if atom.operator in ("", ":-", "-"):
                return numbers(atom.name)
            return None
        if isinstance(atom, Arithmetic):
            return _computed(atom.tokens, numbers)
        return None


EMPTY = Value()


def text_value(text: str, span: Span) -> Value:
    return Value((Literal(text, span),)) if text else EMPTY


def _shown(atom: Atom) -> str:
    if isinstance(atom, Literal):
        return atom.text
    if isinstance(atom, Variable):
        return f"${atom.name}"
    if isinstance(atom, Output):
        return f"$({atom.text.strip()})"
    return "$((" + "".join(token if isinstance(token, str) else token.text for token in atom.tokens) + "))"


_TOKEN = re.compile(r"\s*(\d+|\*\*|[-+*/%()]|.)")


def _computed(tokens: tuple[str | Value, ...], numbers: Numbers) -> int | None:
    """The value of an arithmetic expression of known numbers with + - * / % and parentheses."""
    flat: list[str] = []
    for token in tokens:
        if isinstance(token, Value):
            number = token.number(numbers)
            if number is None:
                return None
            flat.append(str(number))
        else:
            flat += _TOKEN.findall(token)
    if len(flat) > 50:
        return None
    try:
        value, rest = _sum(flat)
    except (ValueError, IndexError, ZeroDivisionError):
        return None
    return value if not rest and abs(value) < 10**9 else None


def _sum(tokens: list[str]) -> tuple[int, list[str]]:
    value, tokens = _product(tokens)
    while tokens and tokens[0] in "+-":
        other, rest = _product(tokens[1:])
        value = value + other if tokens[0] == "+" else value - other
        tokens = rest
    return value, tokens


def _product(tokens: list[str]) -> tuple[int, list[str]]:
    value, tokens = _factor(tokens)
    while tokens and tokens[0] in ("*", "/", "%"):
        other, rest = _factor(tokens[1:])
        value = value * other if tokens[0] == "*" else value // other if tokens[0] == "/" else value % other
        tokens = rest
    return value, tokens


def _factor(tokens: list[str]) -> tuple[int, list[str]]:
    if tokens[0] == "(":
        value, rest = _sum(tokens[1:])
        if rest[0] != ")":
            raise ValueError
        return value, rest[1:]
    return int(tokens[0]), tokens[1:]
