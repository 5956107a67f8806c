"""What holds at one place of a script: variables, the shell that reads it, the working directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from rankup.check.document import Span
from rankup.check.facts.job.commands import EMPTY, Binding, Command, Output, Shell, Value, Variable
from rankup.check.facts.job.printing import all_printed
from rankup.check.facts.job.source import Source
from rankup.check.facts.job.words import fields, requoted

DEEPEST = 60  # nested statements


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
    answered: bool = False
    nounset: bool = False
    export_all: bool = False


class ScopeKeeper:
    """Keeps the state, and knows what variables and ``$(…)`` become. Statements are read by ``job_shell``."""

    def __init__(self) -> None:
        self.state = State(Shell())
        self.commands: list[Command] = []
        self.assigned: dict[str, list[Binding]] = {}
        self.expansions: list[Variable] = []
        self.tested: set[str] = set()  # variables that a condition looks at
        self.depth = 0

    # ---- for words

    def variable(
        self, name: str, span: Span, operator: str, default: Value | None, index: str | None, quoted: bool
    ) -> Value:
        binding = self.state.scope.get(name)
        # "$@" is all of them, where "$array" is its first one.
        which = "@" if index is None and name in ("@", "*") else index
        if binding is not None and binding.certain and operator in ("", ":-", "-", ":=", "=", ":?", "?"):
            value = _element(binding.value, which)
            if value is not None and len(value.atoms) < 200:
                first = value.atoms[0] if len(value.atoms) == 1 else None
                if (
                    default is not None and isinstance(first, Variable) and not first.operator
                ):  # SCRIPT=$1 before it
                    value = Value((replace(first, operator=operator, default=default),))
                return value if quoted and which == "@" else requoted(value, quoted)
        if (
            operator in (":+", "+") and default is not None
        ):  # the words, if it is set: they say more than nothing
            self.tested.add(name)
            is_empty = binding is not None and binding.certain and binding.value.known == ""
            return EMPTY if is_empty else requoted(default, quoted)
        unknown = Variable(
            name + (f"[{index}]" if index else ""), span, self.state.shell, operator, default, quoted
        )
        self.expansions.append(unknown)
        if operator in (":=", "=") and default is not None and binding is None:
            self.bind(name, Value((unknown,)), span)
        return Value((unknown,))

    def output(self, source: Source, start: int, end: int, span: Span, quoted: bool) -> Value:
        inner = Value(tuple(source.literal(source.text[start:end], start, end, True)))
        first = len(self.commands)
        if self.depth < DEEPEST // 3:
            with self.changed(in_output=True, background=False, pipe=(), parent=None), self.own_scope():
                self.text(inner)
        commands = tuple(self.commands[first:])
        text = all_printed(commands) if len(commands) == 1 and commands[0].name == "printf" else None
        if text is not None and not text.tail.endswith("\n"):
            return requoted(text, quoted)
        return Value((Output(source.text[start:end], span, self.state.shell, commands, quoted),))

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

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Commands whose failure is a question: before ``||`` or ``&&``, after ``if``."""
        answered, self.state.answered = self.state.answered, True
        yield
        self.state.answered = answered

    def bind(
        self, name: str, value: Value, span: Span, *, certain: bool = True, export: bool = False
    ) -> None:
        before = self.state.scope.get(name)
        exported = export or self.state.export_all or (before is not None and before.exported)
        binding = Binding(value, span, exported, certain)
        self.state.scope[name] = binding
        self.assigned.setdefault(name, []).append(binding)

    def text(self, value: Value) -> None:
        """Reads a text as a shell does."""
        raise NotImplementedError


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
