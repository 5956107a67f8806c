"""A job script's commands, the values of their words, the shells that expand these, and the steps on nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Union

from rankup.check.document import Span
from rankup.check.facts.job.arithmetic import computed, tokens_of

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
            if end <= atom.span.start <= end + 3:  # quotes and backslashes between them
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
            if atom.operator in ("", ":-", "-", ":=", "="):
                return numbers(atom.name)
            return None
        if isinstance(atom, Arithmetic):
            return _computed(atom.tokens, numbers)
        return None


EMPTY = Value()


def _shown(atom: Atom) -> str:
    if isinstance(atom, Literal):
        return atom.text
    if isinstance(atom, Variable):
        return f"${atom.name}"
    if isinstance(atom, Output):
        return f"$({atom.text.strip()})"
    return "$((" + "".join(token if isinstance(token, str) else token.text for token in atom.tokens) + "))"


def _computed(tokens: tuple[str | Value, ...], numbers: Numbers) -> int | None:
    flat: list[str] = []
    for token in tokens:
        if isinstance(token, Value):
            number = token.number(numbers)
            if number is None:
                return None
            flat.append(str(number))
        else:
            flat += tokens_of(token)
    return computed(flat)


@dataclass(frozen=True)
class Step:
    """A node launcher's start of a command. A number that is not known is None."""

    kind: str  # srun, mpirun, mpiexec, pbsdsh, pbs_tmrsh, ssh, blaunch, jsrun, aprun, …
    span: Span
    options: Mapping[str, Value]
    nodes: int | None = None
    tasks: int | None = None
    tasks_per_node: int | None = None
    in_loop: bool = False  # it is started again and again, say for each host
    background: bool = False
    outer: Step | None = None


@dataclass(frozen=True, eq=False)
class Shell:
    """Who expands a word: the batch shell (``step`` is None), or a shell that a step starts."""

    step: Step | None = None
    containers: tuple[str, ...] = ()  # apptainer, docker, …
    interactive: bool = False


@dataclass(frozen=True)
class Redirect:
    operator: str  # > >> < 2> &> …
    target: Value
    span: Span


@dataclass(frozen=True)
class Binding:
    """A variable's value at some place in a script."""

    value: Value
    span: Span
    exported: bool = False
    certain: bool = True  # False: it was assigned in a branch, or in a loop


@dataclass(eq=False)
class Command:
    """A simple command. A command that another one starts (of ``srun``, ``time``, ``bash -c``) has it as ``parent``."""

    span: Span
    argv: tuple[Value, ...]
    shell: Shell
    environment: tuple[tuple[str, Binding], ...] = ()  # X=1 before the command
    parent: Command | None = None
    background: bool = False
    conditional: bool = False  # in an if, a case, or after && and ||
    in_loop: bool = False
    function: str = ""  # the function whose body it is in
    in_output: bool = False  # in $(…)
    pipe: tuple[str, ...] = ()  # the names of the commands after it in its pipeline
    redirects: tuple[Redirect, ...] = ()
    heredoc: Value | None = None
    opaque: bool = False  # its words come from a variable that is not known
    scope: Mapping[str, Binding] = field(default_factory=dict, repr=False)
    step: Step | None = None  # of a node launcher: the step that it starts
    pipefail: bool = False
    exits_on_error: bool = False  # set -e
    answered: bool = False  # its failure is a question: before || or &&, after `if`
    nounset: bool = False  # set -u
    folder: str | None = ""

    @cached_property
    def name(self) -> str:
        """The program's name without its folder; "" if it is not known."""
        if not self.argv:
            return ""
        known = self.argv[0].known
        if known is not None:
            return known.rstrip("/").rpartition("/")[2]
        tail = self.argv[0].tail
        return tail.rpartition("/")[2] if "/" in tail else ""

    @cached_property
    def args(self) -> tuple[str | None, ...]:
        """The arguments' known texts."""
        return tuple(value.known for value in self.argv[1:])

    def has(self, *options: str) -> bool:
        """Whether one of ``options`` stands among its arguments, alone or with ``=value``."""
        return any(arg in options or arg.partition("=")[0] in options for arg in self.args if arg is not None)

    def option(self, *options: str) -> Value | None:
        """The value of an option: of ``--name value``, ``--name=value`` or ``-n value``; the last one wins."""
        found = None
        for index, word in enumerate(self.argv[1:], 1):
            head = word.head
            if head in options and word.known is not None:
                found = self.argv[index + 1] if index + 1 < len(self.argv) else EMPTY
            else:
                name, equals, _ = head.partition("=")
                if equals and name in options:
                    found = word.after(len(name) + 1)
        return found
