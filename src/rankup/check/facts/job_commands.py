"""A job script's commands, the shells that expand their words, and the steps that start them on nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from rankup.check.document import Span
from rankup.check.facts.job_values import EMPTY, Value


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

    @property
    def has_one_task(self) -> bool:
        return self.tasks == 1


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
