"""From a scheduler's words to one sentence that names the flag to change. The tables: ``errors.py`` of each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rankup.core.shell import Completed
from rankup.core.units import clock, size
from rankup.errors import RankupError
from rankup.spec.jobspec import JobSpec

_NOT_FOUND, _TIMED_OUT = 127, 124  # core/shell's codes
_MOST_WORDS = 600  # characters of a scheduler's own words: some sites print pages


@dataclass(frozen=True)
class ErrorRow:
    """A row of a table: what the scheduler says, as a pattern, and what we say then.

    In ``message``, ``{time}`` stands for the flag as it was given (``--time 72:00:00``, or ``--time`` alone), and so do
    the other fields of ``JobSpec``; a queue is ``{partition}`` or ``{queue}``. ``exit_code`` 1 says that the job was
    well described and the scheduler could not take it.
    """

    pattern: str
    code: str
    message: str
    hint: str
    exit_code: int = 2


def explain_error(
    done: Completed, table: Sequence[ErrorRow], client: str, spec: JobSpec | None = None
) -> RankupError:
    """The error for what ``client`` (``sbatch``) answered: the first row of ``table`` that matches its words."""
    words = own_words(done)
    if done.code == _NOT_FOUND and re.search(r"No such file or directory|not found|^$", done.err):
        return RankupError(
            "scheduler-missing",
            f"{client} is not on this machine",
            context=words,
            hint="log in to a login node of the cluster, or load its module; `rankup run` needs no scheduler",
        )
    if done.code == _TIMED_OUT:
        return RankupError(
            "scheduler-unreachable",
            f"{client} gave no answer",
            context=words,
            hint="the scheduler is busy or down: try again in some minutes",
            exit_code=1,
        )
    for row in table:
        if re.search(row.pattern, words, re.IGNORECASE):
            message = row.message.format_map(flags_as_given(spec))
            return RankupError(row.code, message, context=words, hint=row.hint, exit_code=row.exit_code)
    return RankupError(
        "scheduler-refused",
        f"{client} refused, and only its own words say why",
        context=words or f"{client} ended with exit code {done.code} and without a word",
        hint="they may be the site's own rules: its documentation, or its support, knows them",
    )


def own_words(done: Completed) -> str:
    """What the scheduler said, on one line: stderr, else stdout (where some sites' filters print)."""
    lines = [" ".join(line.split()) for line in (done.err.strip() or done.out).splitlines()]
    return "; ".join(line for line in lines if line)[:_MOST_WORDS]


def flags_as_given(spec: JobSpec | None) -> dict[str, str]:
    """Each flag that a refusal may name, with the value that the job has, if it has one."""
    values: dict[str, object] = dict.fromkeys(
        ("queue", "account", "time", "mem", "nodes", "array", "after"), ""
    )
    values |= dict.fromkeys(("gpus_per_node", "cpus_per_task", "nproc_per_node", "name", "mail"), "")
    if spec is not None:
        values |= {name: getattr(spec, name) or "" for name in values}
        values["time"] = clock(spec.time) if spec.time else ""
        values["mem"] = size(spec.mem) if spec.mem else ""
        values["after"] = " ".join((*spec.after, *spec.after_any))
    values["partition"] = values["queue"]
    return {name: f"--{name.replace('_', '-')} {value}".rstrip() for name, value in values.items()}
