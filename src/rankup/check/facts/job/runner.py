"""What a simple command does: builtins, functions, wrappers, node launchers, and the programs that they start."""

from __future__ import annotations

import re
from collections.abc import Callable

from rankup.check.document import Document, Span
from rankup.check.facts.job.builtins import HERE, builtin
from rankup.check.facts.job.commands import Binding, Command, Literal, Output, Redirect, Shell, Step, Value
from rankup.check.facts.job.job import Launch, NotFollowed
from rankup.check.facts.job.launches import LauncherLine, path_of, start_of, why_not_found
from rankup.check.facts.job.options import parse
from rankup.check.facts.job.printing import PRINTING, TO_FILE, printed
from rankup.check.facts.job.request import Request
from rankup.check.facts.job.shell import ShellReader
from rankup.check.facts.job.source import Source, joined, language_of
from rankup.check.facts.job.steps import Fanout, fan_out
from rankup.check.facts.job.submitted import ONLY_ASKS, SUBMITTING, Submitted
from rankup.check.facts.job.tools import TOOLS
from rankup.check.facts.job.wrappers import Inner, unwrap
from rankup.check.facts.start import Start
from rankup.launch_grammar.accelerate_config import accelerate_config

_SCRIPT = re.compile(r"\.(sh|bash|slurm|sbatch|pbs)\Z")
_NAME = re.compile(r"\\\$\w+")  # a variable, in a pattern
_DEEPEST = 40  # commands that start commands
_MOST_WORDS = 20  # of an unknown program, before the command that it starts
_STARTER = re.compile(r"bash|sh|ray|torchrun|accelerate|deepspeed|python[\d.]*")


#: A path that a job script names → the text of that script, if it is there.
FindScript = Callable[[str], Document | None]


def no_script(path: str) -> Document | None:
    return None


class Runner(ShellReader):
    """Reads a job script whose request is known, and the scripts that it runs.

    ``end`` is where the job's own text ends: the places in the text of a helper script count on from there.
    """

    def __init__(self, request: Request, end: int, find_script: FindScript = no_script) -> None:
        super().__init__()
        self.request = request
        self.end = end
        self.find_script = find_script
        self.helpers: dict[str, Document] = {}
        self.not_followed: list[NotFollowed] = []
        self.launches: list[Launch] = []
        self.starts_unknown: list[Command] = []
        self.unread: list[Command] = []  # of programs that nobody knows
        self.submitted: list[Submitted] = []
        self.feeder: Command | None = None  # the last command before a pipe
        self.nested = 0
        self.reading: set[str] = set()

    def start(
        self,
        argv: tuple[Value, ...],
        span: Span,
        environment: tuple[tuple[str, Binding], ...] = (),
        redirects: tuple[Redirect, ...] = (),
        heredoc: Value | None = None,
    ) -> None:
        state = self.state
        command = Command(
            span, argv, state.shell, environment, state.parent, state.background, state.conditional, state.in_loop,
            state.function, state.in_output, state.pipe, redirects, heredoc, pipefail=state.pipefail,
            exits_on_error=state.exits_on_error, answered=state.answered, nounset=state.nounset, folder=state.folder,
        )  # fmt: skip
        self.commands.append(command)
        if not argv:
            for name, binding in environment:
                self.bind(name, binding.value, binding.span)
            return
        self._writes(command)
        if command.pipe or command.heredoc is not None:
            self.feeder = command if command.name not in SUBMITTING else self.feeder
        if self.nested >= _DEEPEST:
            self.broken = True
            return
        self.nested += 1
        try:
            self._run(command)
        finally:
            self.nested -= 1

    def _writes(self, command: Command) -> None:
        """Remembers the files that a command writes with known text."""
        if command.name in PRINTING:
            targets = command.redirects
            if command.name == "tee":
                words = [word for word in command.argv[1:] if not word.head.startswith("-")]
                targets = (*targets, *(Redirect(">", word, word.span) for word in words))
            self.keep(printed(command), targets)

    def keep(self, content: Value | None, redirects: tuple[Redirect, ...]) -> None:
        for redirect in redirects:
            if redirect.operator not in TO_FILE:
                continue
            name = redirect.target.text
            before = self.files.get(name) if redirect.operator == ">>" else None
            if content is None:
                self.files.pop(name, None)
            else:
                self.files[name] = content if before is None else joined((before, content), "\n")

    def _run(self, command: Command) -> None:
        name, argv = command.name, command.argv
        if name in self.functions and argv[0].known == name:
            self.call(name, argv[1:])
        elif builtin(self, command):
            return
        elif (fanout := fan_out(name, argv, self.request)) is not None:
            self._step(command, fanout)
        elif name not in ("python", "python3") and (inner := unwrap(name, argv)) is not None:
            self._inner(command, inner)
        elif (start := start_of(name, argv)) is not None:
            self._launch(command, start)
        elif name in ("bash", "sh") and command.heredoc is not None:
            self._shell_text(command, command.heredoc)
        elif name in SUBMITTING:
            self._submit(command)
        else:
            self._other(command)

    # ---- what a command starts

    def _step(self, command: Command, fanout: Fanout) -> None:
        if not fanout.argv and fanout.text is None and command.heredoc is None:
            command.step = self._new_step(command, fanout)
            return
        step = command.step = self._new_step(command, fanout)
        containers = self.state.shell.containers
        if any(name.startswith("container-image") for name in fanout.parsed.options):
            containers = (*containers, "pyxis")
        shell = Shell(step, containers)
        remote = fanout.kind in ("ssh", "pdsh", "pbsdsh", "pbs_tmrsh")
        with self.changed(shell=shell, parent=command, pipe=()):
            self.state.scope = {} if remote else dict(self.state.scope)
            if remote:
                self.state.folder = None
            if fanout.text is not None:
                self.text(fanout.text)
            elif fanout.argv:
                self.start(fanout.argv, _span_of(fanout.argv), heredoc=command.heredoc)
            elif command.heredoc is not None and fanout.kind == "ssh":
                self.text(command.heredoc)

    def _new_step(self, command: Command, fanout: Fanout) -> Step:
        return Step(
            fanout.kind, command.span, fanout.parsed.options, fanout.nodes, fanout.tasks, fanout.tasks_per_node,
            command.in_loop, command.background, command.shell.step,
        )  # fmt: skip

    def _inner(self, command: Command, inner: Inner) -> None:
        shell = self.state.shell
        if inner.container:
            shell = Shell(shell.step, (*shell.containers, inner.container))
        environment = tuple((name, Binding(value, value.span, True)) for name, value in inner.environment)
        with self.changed(shell=shell, parent=command, pipe=()):
            self.state.scope = dict(self.state.scope)
            if inner.text is not None:
                if inner.argv:  # `bash -c TEXT NAME WORDS…`
                    self.state.scope["0"] = Binding(inner.argv[0], inner.argv[0].span)
                self.parameters(inner.argv[1:])
                self.text(inner.text)
            elif inner.script is not None:
                self._script(command, inner.script, inner.argv)
            else:
                self.start(inner.argv, _span_of(inner.argv), environment, heredoc=command.heredoc)

    def _submit(self, command: Command) -> None:
        """Another job is submitted: its text is kept where this script has it."""
        options, (feeder, self.feeder) = parse(command.name, command.argv[1:]), (self.feeder, None)
        text = options.options.get("wrap", command.heredoc)
        if text is None and options.rest:
            written = self._written(options.rest[0])
            text = self.files[written] if written is not None else None
        elif text is None:
            text = printed(feeder) if feeder is not None and feeder.name in PRINTING else None
            of_file = command.redirects or (feeder is not None and _SCRIPT.search(feeder.argv[-1].tail))
            if text is None and not of_file and not options.options.keys() & ONLY_ASKS:
                self.not_followed.append(
                    NotFollowed(command.name, command.span, "only the job knows its input")
                )
        if text is not None and text.atoms:
            self.submitted.append(Submitted(command.name, command.span, options, text))

    def _shell_text(self, command: Command, text: Value) -> None:
        with self.changed(parent=command, pipe=()):
            self.state.scope = dict(self.state.scope)
            self.text(text)

    def _script(self, command: Command, script: Value, arguments: tuple[Value, ...]) -> None:
        """A shell script is run: one that was written before, or one that is not here."""
        name = self._written(script)
        if name is not None:
            before = dict(self.state.scope)
            self.parameters(arguments)
            content = self.files.pop(name)
            self.text(content)
            self.files[name] = content
            self.state.scope = before
        elif not self._helper(script, arguments):
            self.starts_unknown.append(command)
            self.not_found(script)
            self._of_wrapper(arguments)

    def _written(self, script: Value) -> str | None:
        """The file that the script has written and now runs; a number in its name may have another variable there."""
        name = script.text.removeprefix("./")
        if name in self.files or script.known is not None or not script.tail:
            return name if name in self.files else None
        like = re.compile(_NAME.sub(r"\\$\\w+", re.escape(name)))
        found = [known for known in self.files if like.fullmatch(known)]
        return found[0] if len(found) == 1 else None

    def _helper(self, script: Value, arguments: tuple[Value, ...]) -> bool:
        """Reads a script of another file, which gets what is exported. Whether it is there."""
        before = self.state.scope
        self.state.scope = {name: binding for name, binding in before.items() if binding.exported}
        self.parameters(arguments)
        with self.changed(function="", pipefail=False, exits_on_error=False, answered=False, nounset=False):
            found = self.include(script)
        self.state.scope = before
        return found

    def include(self, script: Value) -> bool:
        """Reads a shell script of another file as a part of this one. Whether it is there."""
        path = path_of(script, self.state.folder, HERE)
        document = self.find_script(path) if path else None
        if document is None or document.path in self.reading or language_of(document.text) != "bash":
            return False
        if document.path not in self.helpers:
            self.helpers[document.path] = document
        start = self.end + 1
        for path, helper in self.helpers.items():
            if path == document.path:
                break
            start += len(helper.text) + 1
        self.reading.add(document.path)
        self.source(Source.of_document(document.text.replace("\r", " "), start))
        self.reading.discard(document.path)
        return True

    def not_found(self, script: Value) -> None:
        """Notes a script that was not read."""
        name, why = why_not_found(script, path_of(script, self.state.folder, HERE))
        self.not_followed.append(NotFollowed(name, script.span, why))

    def _of_wrapper(self, arguments: tuple[Value, ...]) -> bool:
        """``wrapper [its arguments] python train.py``. Whether it starts something that is known."""
        for index, word in enumerate(arguments[:_MOST_WORDS]):
            name = (word.known or "").rpartition("/")[2]
            if _STARTER.fullmatch(name) and _starts_something(name, arguments[index:]):
                self.start(arguments[index:], _span_of(arguments[index:]))
                return True
        return False

    def _launch(self, command: Command, start: LauncherLine) -> None:
        if start.inline:
            return
        if start.no_python:
            inner = unwrap(start.no_python[0].known or "", start.no_python)
            words = inner.argv if inner is not None else start.no_python
            found = next((i for i, word in enumerate(words) if (word.known or "").endswith(".py")), None)
            script = words[found] if found is not None else None
        else:
            script = start.script
        if (
            script is not None
            and start.launcher in ("torchrun", "launch")
            and script.known in ("python", "python3")
        ):
            script = start.arguments[0] if start.arguments else None
        if start.launcher == "accelerate" and "config_file" in start.options:
            self._configure(start, start.options["config_file"])
        path = ""
        if script is not None:
            path = path_of(script, self.state.folder, HERE) or self._own_choice(script)
        self.launches.append(
            Launch(
                command.span, path, self._start(command, start), None, start.launcher, start.options, start.words,
                script, start.module, start.arguments, command, dict(self.state.scope),
                start.unknown,
            )
        )  # fmt: skip

    def _own_choice(self, script: Value) -> str:
        """The program that a script takes where it gets no other: the only value that it gives the variable itself."""
        name = getattr(script.atoms[0], "name", "") if len(script.atoms) == 1 else ""
        given = self.assigned.get(name, ())
        known = {binding.value.known: binding.value for binding in given if binding.value.known}
        return path_of(known.popitem()[1], self.state.folder, HERE) if len(known) == 1 else ""

    def _configure(self, start: LauncherLine, file: Value) -> None:
        """What accelerate's configuration file gives in place of options."""
        path = path_of(file, self.state.folder, HERE)
        document = self.find_script(path) if path else None
        if document is None:
            self.not_found(file)
            return
        for option, text in accelerate_config(document.text).items():
            start.options.setdefault(option, Value((Literal(text, file.span),)))
            start.words.setdefault(option, file)

    def _start(self, command: Command, line: LauncherLine) -> Start:
        """The numbers of a launch, for the rules of its program."""
        request, step = self.request, command.shell.step
        kind = "python"
        nodes: int | None = 1
        processes: int | None = 1
        in_all: int | None = None
        if line.launcher == "python":
            if step is not None:
                kind, nodes, processes, in_all = step.kind, step.nodes, step.tasks_per_node, step.tasks
        else:
            kind = "torchrun" if line.launcher == "launch" else line.launcher
            given = line.options.get("nnodes")
            nodes = given.number(request.number) if given is not None else 1
            given = line.options.get("nproc_per_node")
            if given is None:
                processes = 1 if kind == "torchrun" else None
            elif given.known in ("gpu", "auto"):
                processes = request.gpus_per_node
            else:
                processes = given.number(request.number)
        cpus, tasks, gpus = request.cpus_per_task, request.tasks_per_node, request.gpus_per_node
        if request.scheduler == "slurm":
            cpus = cpus * tasks if cpus and tasks else None
        elif request.scheduler == "pbs" and request.packed and request.nodes != 1:
            cpus = gpus = None  # nobody knows how many chunks share a node
        arguments = tuple(value.text for value in line.arguments)
        return Start(kind, nodes, processes, gpus, cpus, arguments, in_all)

    def _other(self, command: Command) -> None:
        """A program that nobody knows, perhaps a script."""
        argv = command.argv
        first = argv[0]
        if first.known is None and len(first.atoms) == 1 and not isinstance(first.atoms[0], Output):
            command.opaque = True
            self.starts_unknown.append(command)
            self.not_followed.append(NotFollowed(first.text, command.span, "only the job knows its words"))
        if first.text.removeprefix("./") in self.files:
            self._script(command, first, argv[1:])
        elif _SCRIPT.search(first.tail) or (first.known is None and "/" in first.tail):
            with self.changed(parent=command, pipe=()):
                self._script(command, first, argv[1:])
        elif first.tail.endswith(".py") and ("/" in first.text or _runs_files(command.parent)):  # ./train.py
            self._launch(command, LauncherLine("python", script=first, arguments=argv[1:]))
        elif command.name not in TOOLS:
            with self.changed(parent=command, pipe=()):
                starts = self._of_wrapper(argv[1:])
            if not starts and not _STARTER.fullmatch(command.name):
                self.unread.append(command)


def _runs_files(command: Command | None) -> bool:
    """Whether it takes a Python file for the command: ``uv run train.py``."""
    return command is not None and command.name in ("uv", "pdm", "rye")


def _starts_something(name: str, words: tuple[Value, ...]) -> bool:
    """Whether the words after an unknown program's are a command: a shell's text or script, or a program."""
    if name in ("bash", "sh"):
        inner = unwrap(name, words)
        if inner is None or inner.text is not None:
            return inner is not None
        return inner.script is not None and bool(_SCRIPT.search(inner.script.tail))
    line = start_of(name, words)
    if line is None or line.inline or line.module or line.no_python:
        return line is not None
    return line.script is not None and not line.script.head.startswith("-")


def _span_of(argv: tuple[Value, ...]) -> Span:
    spans = [value.span for value in argv if value.atoms]
    if not spans:
        return Span(0, 0)
    return (
        Span(spans[0].start, max(spans[0].end, spans[-1].end))
        if spans[0].start <= spans[-1].start
        else spans[0]
    )
