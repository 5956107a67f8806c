"""Signals before the time limit, traps, and requeues in a job script."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rankup.check.document import Span
from rankup.check.facts.job import Job
from rankup.check.facts.job_commands import Command

_SIGNAL = re.compile(r"(?:([BRbr]+):)?(?:SIG)?([A-Z]+\d?|\d+)(?:@(\d+))?\Z")
_NUMBERS = {"10": "USR1", "12": "USR2", "15": "TERM", "2": "INT", "1": "HUP", "18": "CONT"}


@dataclass(frozen=True)
class Signal:
    """What ``--signal`` asks for."""

    name: str  # USR1
    to_batch: bool
    value: str
    span: Span
    value_start: int


def batch_signal(job: Job) -> Signal | None:
    """The signal that the job wants before its time limit; None if there is none, or a placeholder."""
    directive = job.request.get("signal") if job.scheduler == "slurm" else None
    match = _SIGNAL.match(directive.value.replace("SIG", "", 1)) if directive is not None else None
    if directive is None or match is None:
        return None
    name = _NUMBERS.get(match.group(2), match.group(2))
    to_batch = "B" in (match.group(1) or "").upper()
    return Signal(name, to_batch, directive.value, directive.span, directive.value_span.start)


def traps(job: Job, name: str) -> list[Command]:
    """The traps for a signal in the batch shell (or in what it calls)."""
    found = []
    for command in job.named("trap"):
        names = [(word or "").upper().removeprefix("SIG") for word in command.args[1:]]
        if command.shell.step is None and (
            name in [_NUMBERS.get(one, one) for one in names] or None in command.args[1:]
        ):
            found.append(command)
    return found


def execs_the_program(job: Job) -> bool:
    """Whether the last thing that the batch shell does is to become the program."""
    return any(
        command.name == "exec" and command.shell.step is None and len(command.argv) > 1
        for command in job.commands
    )


def in_background(command: Command) -> bool:
    """Whether the command, or one that starts it, is in the background."""
    current: Command | None = command
    while current is not None:
        if current.background:
            return True
        current = current.parent
    return False


def requeue_commands(job: Job) -> list[Command]:
    """Where the script requeues its job."""
    return [command for command in job.named("scontrol") if command.args[:1] == ("requeue",)]


def requeues_itself(job: Job) -> bool:
    """Whether the script requeues its job or submits another one."""
    return bool(requeue_commands(job)) or any(True for _ in job.named("sbatch"))
