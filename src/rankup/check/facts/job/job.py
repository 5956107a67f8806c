"""What a job script says: its directives, its commands, and what each of them starts, where."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from rankup.check.document import Document, Span
from rankup.check.facts.job.commands import Binding, Command, Shell, Step, Value, Variable
from rankup.check.facts.job.directives import DirectiveLine
from rankup.check.facts.job.request import Request
from rankup.check.facts.program.imports import KNOWN_PACKAGES
from rankup.check.facts.program.program import Program
from rankup.check.facts.start import Start
from rankup.sites.site import Site


@dataclass(frozen=True)
class NotFollowed:
    """A program or script that a job starts, and that was not read."""

    name: str
    span: Span
    reason: str


@dataclass(eq=False)
class Launch:
    """One start of a training program by a job script."""

    span: Span
    script: str = ""  # the program's path, relative to the script's folder or absolute; "" if unknown
    start: Start = field(default_factory=Start)  # the same for the rules of the program
    program: Program | None = None  # None: the file was not found, or is not Python
    launcher: str = "python"  # torchrun, launch, accelerate, deepspeed, horovodrun, fabric
    options: Mapping[str, Value] = field(
        default_factory=dict
    )  # nnodes, nproc_per_node, node_rank, rdzv_*, master_*
    words: Mapping[str, Value] = field(default_factory=dict)  # option → the word in which it stands
    target: Value | None = None  # the program, as it is written
    module: str = ""  # of python -m
    arguments: tuple[Value, ...] = ()
    command: Command = field(default_factory=lambda: Command(Span(0, 0), (), Shell()))
    scope: Mapping[str, Binding] = field(default_factory=dict, repr=False)  # the variables at this place
    unknown: tuple[Value, ...] = ()  # options that the launcher does not have
    beside: tuple[str, ...] = ()  # the Python files where a program that is not there was looked for

    @property
    def paths(self) -> tuple[str, ...]:
        """Where the program may be; none if nobody knows, or if it is a module of an installed package."""
        if self.script.endswith(".py"):
            return (self.script,)
        top, path = self.module.partition(".")[0], self.module.replace(".", "/")
        if not top.isidentifier() or top in KNOWN_PACKAGES:
            return ()
        return tuple(f"{at}{path}{end}" for at in ("", "src/") for end in (".py", "/__main__.py"))

    @property
    def step(self) -> Step | None:
        """The node launcher that starts it; None: it runs on the batch host alone."""
        return self.command.shell.step

    @property
    def forms_ranks(self) -> bool:
        """Whether the launcher itself starts one process per GPU."""
        return self.launcher in ("torchrun", "launch", "accelerate", "deepspeed", "fabric", "horovodrun")

    @property
    def is_torchrun(self) -> bool:
        return self.launcher in ("torchrun", "launch")

    @property
    def containers(self) -> tuple[str, ...]:
        return self.command.shell.containers

    def exported(self, name: str) -> Value | None:
        """The value of an environment variable of the program, if the script sets it."""
        command: Command | None = self.command
        while command is not None:
            for known, binding in command.environment:
                if known == name:
                    return binding.value
            command = command.parent
        found = self.scope.get(name)
        return found.value if found is not None and found.exported and found.certain else None


@dataclass(eq=False)
class Job:
    """A job script."""

    document: Document
    site: Site | None = None  # of --site; None: rules must not assume anything about the cluster
    launches: list[Launch] = field(default_factory=list)
    language: str = "bash"  # by its first line: bash, csh, python, …
    request: Request = field(default_factory=Request)
    lines: list[DirectiveLine] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    assigned: dict[str, list[Binding]] = field(default_factory=dict)  # every assignment to a variable
    expansions: list[Variable] = field(default_factory=list)  # every expansion without a known value
    starts_unknown: list[Command] = field(
        default_factory=list
    )  # scripts that are not here: they may start anything
    not_followed: list[NotFollowed] = field(default_factory=list)
    submits: list[Document] = field(default_factory=list)  # jobs whose text it has in itself
    submitter: Job | None = None  # the script that has this job's text in itself
    list_folder: Callable[[str], tuple[str, ...] | None] = lambda name: None  # before the job starts
    broken: bool = False  # parts could not be read: nothing follows from what is absent
    first_command: int = 0  # where the scheduler stops to read directives
    crlf: bool = False
    quote_first: Span | None = None  # the first command is only a quote, and directives follow
    misspelt: list[tuple[Span, str]] = field(
        default_factory=list
    )  # directives that are comments, and what was meant
    blanks_after_backslash: list[Span] = field(default_factory=list)
    csh_words: list[Span] = field(default_factory=list)  # bash's words in a csh script
    sources_files: bool = False  # it reads other scripts, which may set any variable
    tested: set[str] = field(default_factory=set)  # variables that a condition looks at
    functions: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)  # of all NAME=, also in arguments and texts

    @property
    def scheduler(self) -> str:
        """slurm, pbs, torque, lsf, or "": not a batch script."""
        return self.request.scheduler

    @property
    def complete(self) -> bool:
        """Whether something follows from what is absent."""
        return self.document.complete and not self.broken

    def number(self, value: Value | None) -> int | None:
        return value.number(self.request.number) if value is not None else None

    def named(self, *names: str) -> Iterator[Command]:
        """The commands with one of these names."""
        return (command for command in self.commands if command.name in names)

    @property
    def steps(self) -> Iterator[Command]:
        """The commands of node launchers."""
        return (command for command in self.commands if command.step is not None)
