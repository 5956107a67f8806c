"""What a simple command does: builtins, functions, wrappers, node launchers, and the programs that they start."""

from __future__ import annotations

import re

from rankup.check.document import Span
from rankup.check.facts.job import Launch
from rankup.check.facts.job_builtins import HERE, builtin
from rankup.check.facts.job_commands import Binding, Command, Output, Redirect, Shell, Step, Value
from rankup.check.facts.job_launches import LauncherLine, relative_path, start_of
from rankup.check.facts.job_request import Request
from rankup.check.facts.job_shell import ShellReader
from rankup.check.facts.job_source import joined
from rankup.check.facts.job_steps import Fanout, fan_out
from rankup.check.facts.job_wrappers import Inner, unwrap
from rankup.check.facts.start import Start

_SCRIPT = re.compile(r"\.(sh|bash|slurm|sbatch|pbs)\Z")
_DEEPEST = 40  # commands that start commands


class Runner(ShellReader):
    """Reads a job script whose request is known."""

    def __init__(self, request: Request) -> None:
        super().__init__()
        self.request = request
        self.launches: list[Launch] = []
        self.starts_unknown: list[Command] = []
        self.nested = 0

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
            exits_on_error=state.exits_on_error, folder=state.folder,
        )  # fmt: skip
        self.commands.append(command)
        if not argv:
            for name, binding in environment:
                self.bind(name, binding.value, binding.span)
            return
        self._writes(command)
        if self.nested >= _DEEPEST:
            self.broken = True
            return
        self.nested += 1
        try:
            self._run(command)
        finally:
            self.nested -= 1

    def _writes(self, command: Command) -> None:
        """Remembers the files that the script writes with known text."""
        content = command.heredoc
        if command.name in ("echo", "printf") and command.heredoc is None:
            words = [word for word in command.argv[1:] if word.known not in ("-e", "-n")]
            content = joined(words)
        elif command.name not in ("cat", "tee"):
            return
        targets = [
            redirect.target for redirect in command.redirects if redirect.operator in (">", ">|", ">>")
        ]
        if command.name == "tee":
            targets += [word for word in command.argv[1:] if not word.head.startswith("-")]
        for target in targets:
            appends = any(r.operator == ">>" for r in command.redirects)
            if content is None:
                self.files.pop(target.text, None)
                continue
            before = self.files.get(target.text) if appends else None
            self.files[target.text] = content if before is None else joined((before, content))

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
                for index, argument in enumerate(inner.argv[:9]):
                    self.state.scope[str(index)] = Binding(argument, argument.span)
                self.text(inner.text)
            elif inner.script is not None:
                self._script(command, inner.script, inner.argv)
            else:
                self.start(inner.argv, _span_of(inner.argv), environment, heredoc=command.heredoc)

    def _shell_text(self, command: Command, text: Value) -> None:
        with self.changed(parent=command, pipe=()):
            self.state.scope = dict(self.state.scope)
            self.text(text)

    def _script(self, command: Command, script: Value, arguments: tuple[Value, ...]) -> None:
        """A shell script is run: one that was written before, or one that is not here."""
        content = self.files.get(script.text) or self.files.get(script.text.removeprefix("./"))
        if content is not None:
            before = dict(self.state.scope)
            for index, argument in enumerate(arguments[:9], 1):
                self.state.scope[str(index)] = Binding(argument, argument.span)
            written = self.files.pop(script.text, None)
            self.text(content)
            if written is not None:
                self.files[script.text] = written
            self.state.scope = before
        else:
            self.starts_unknown.append(command)
            self._of_wrapper(arguments)

    def _of_wrapper(self, arguments: tuple[Value, ...]) -> None:
        """``wrapper.sh [its arguments] python train.py``."""
        for index, word in enumerate(arguments[:8]):
            name = (word.known or "").rpartition("/")[2]
            if name in ("torchrun", "accelerate", "deepspeed") or re.fullmatch(r"python[\d.]*", name):
                self.start(arguments[index:], _span_of(arguments[index:]))
                return

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
        path = relative_path(script, self.state.folder, HERE) if script is not None else ""
        self.launches.append(
            Launch(
                command.span, path, self._start(command, start), None, start.launcher, start.options, start.words,
                script, start.module, start.arguments, command, dict(self.state.scope),
            )
        )  # fmt: skip

    def _start(self, command: Command, line: LauncherLine) -> Start:
        """The numbers of a launch, for the rules of its program."""
        request, step = self.request, command.shell.step
        kind = "python"
        nodes: int | None = 1
        processes: int | None = 1
        if line.launcher == "python":
            if step is not None:
                kind, nodes, processes = step.kind, step.nodes, step.tasks_per_node
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
        return Start(kind, nodes, processes, gpus, cpus, arguments)

    def _other(self, command: Command) -> None:
        """A program that nobody knows, perhaps a script."""
        argv = command.argv
        first = argv[0]
        text = first.text.removeprefix("./")
        if first.known is None and len(first.atoms) == 1 and not isinstance(first.atoms[0], Output):
            command.opaque = True
            self.starts_unknown.append(command)
        if text in self.files or first.text in self.files:
            self._script(command, first, argv[1:])
        elif _SCRIPT.search(first.tail) or (first.known is None and "/" in first.tail):
            self.starts_unknown.append(command)
            with self.changed(parent=command, pipe=()):
                self._of_wrapper(argv[1:])
        elif first.tail.endswith(".py") and "/" in first.text:  # ./train.py
            self._launch(command, LauncherLine("python", script=first, arguments=argv[1:]))


def _span_of(argv: tuple[Value, ...]) -> Span:
    spans = [value.span for value in argv if value.atoms]
    if not spans:
        return Span(0, 0)
    return (
        Span(spans[0].start, max(spans[0].end, spans[-1].end))
        if spans[0].start <= spans[-1].start
        else spans[0]
    )
