"""A job script's directives: ``#SBATCH``, ``#PBS``, ``#BSUB``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rankup.check.document import Span
from rankup.check.facts.job.typos import is_slip

_LINE = re.compile(r"^#(SBATCH|PBS|BSUB)(?=[ \t]|$)([^\n]*)", re.M)
_WORD = re.compile(r"""(?:[^\s"'\\]|\\.|"[^"\n]*"|'[^'\n]*')+""")
_UNKNOWN = re.compile(r"[<>{}$%`@\[\]]|\.\.\.|^[xX?]+$|^[A-Z_]{3,}$")

SLURM_SHORT = {
    "A": "account", "a": "array", "B": "extra-node-info", "b": "begin", "C": "constraint", "c": "cpus-per-task",
    "D": "chdir", "d": "dependency", "e": "error", "F": "nodefile", "G": "gpus", "i": "input", "J": "job-name",
    "L": "licenses", "M": "clusters", "m": "distribution", "N": "nodes", "n": "ntasks", "o": "output", "p": "partition",
    "q": "qos", "S": "core-spec", "t": "time", "w": "nodelist", "x": "exclude",
}  # fmt: skip
_FLAGS = (
    "contiguous exclusive export-file get-user-env hold no-requeue overcommit oversubscribe parsable "
    "propagate quiet reboot requeue spread-job share test-only use-min-nodes verbose wait wait-all-nodes "
    "nice kill-on-invalid-dep no-kill hint ignore-pbs immediate gres-flags usage help version"
)
SLURM_FLAGS = frozenset(_FLAGS.split())
_SLURM_SHORT_FLAGS = frozenset("HIkOQsvWh")
_SLURM_ALIASES = {"tasks-per-node": "ntasks-per-node", "job_name": "job-name", "workdir": "chdir"}
_SLURM_NAMES = (
    *SLURM_SHORT.values(), *SLURM_FLAGS, *_SLURM_ALIASES, "acctg-freq", "bb", "bbf", "cluster-constraint", "comment",
    "container", "container-id", "cores-per-socket", "cpu-freq", "cpus-per-gpu", "deadline", "delay-boot", "export",
    "gid", "gpu-bind", "gpu-freq", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "gres", "mail-type",
    "mail-user", "mcs-label", "mem", "mem-bind", "mem-per-cpu", "mem-per-gpu", "mincpus", "network", "ntasks-per-core",
    "ntasks-per-gpu", "ntasks-per-node", "ntasks-per-socket", "open-mode", "power", "prefer", "priority", "profile",
    "reservation", "resv-ports", "segment", "signal", "sockets-per-node", "switches", "thread-spec",
    "threads-per-core", "time-min", "tmp", "tres-bind", "tres-per-task", "uid", "wckey", "wrap", "batch", "stepmgr",
)  # fmt: skip
_PBS_FLAGS = frozenset("VIXhzf")


@dataclass(frozen=True)
class Directive:
    """One option of a directive. ``name`` is the long one without dashes (SLURM), or the letter (PBS, LSF)."""

    scheduler: str  # slurm, pbs, lsf
    name: str
    value: str
    span: Span  # the option with its value
    value_span: Span
    line: Span  # the whole line

    @property
    def known(self) -> bool:
        """False for a placeholder such as ``<nodes>`` or ``{{ nodes }}``."""
        return not _UNKNOWN.search(self.value)

    @property
    def number(self) -> int | None:
        return int(self.value) if re.fullmatch(r"[0-9]{1,8}", self.value) else None


@dataclass(frozen=True)
class DirectiveLine:
    scheduler: str
    span: Span
    words: tuple[tuple[str, Span], ...]
    comment: Span | None = None  # a # and what follows it
    late: bool = False  # after the first command: it is not read


def directive_lines(text: str, first_command: int) -> list[DirectiveLine]:
    """All lines that are directives. ``first_command`` is the offset from which the scheduler does not read on."""
    lines = []
    for match in _LINE.finditer(text):
        words: list[tuple[str, Span]] = []
        comment = None
        for word in _WORD.finditer(text, match.start(2), match.end(2)):
            if word.group().startswith("#"):
                comment = Span(word.start(), match.end(2))
                break
            words.append((word.group(), Span(*word.span())))
        end = match.start() + len(match.group().rstrip())
        lines.append(
            DirectiveLine(
                {"SBATCH": "slurm", "PBS": "pbs", "BSUB": "lsf"}[match.group(1)],
                Span(match.start(), end),
                tuple(words),
                comment,
                match.start() > first_command,
            )
        )
    return lines


def directives_of(line: DirectiveLine) -> list[Directive]:
    """The options of one line, in order."""
    if line.scheduler == "slurm":
        return _slurm(line)
    return _letters(line)


def command_options(words: Sequence[str], scheduler: str) -> int:
    """How many of the words after sbatch or qsub are options and their values: the script follows."""
    index = 0
    while index < len(words) and words[index].startswith("-"):
        word = words[index]
        if word.startswith("--"):
            alone = "=" in word or word[2:] in SLURM_FLAGS
        else:
            alone = len(word) > 2 or word[1:] in (_SLURM_SHORT_FLAGS if scheduler == "slurm" else _PBS_FLAGS)
        index += 1 if alone else 2
    return index


def _unquoted(text: str) -> str:
    return re.sub(r"[\"']|\\(?=.)", "", text)


def _slurm(line: DirectiveLine) -> list[Directive]:
    found: list[Directive] = []
    words = list(line.words)
    index = 0
    while index < len(words):
        text, span = words[index]
        text_end = span.end
        if text.startswith("--"):
            name, equals, value = text[2:].partition("=")
            value_span = Span(span.start + 2 + len(name) + len(equals), span.end)
            name = _full_name(name)
            if not equals and name not in SLURM_FLAGS and index + 1 < len(words):
                index += 1
                value, value_span = words[index]
                text_end = value_span.end
        elif text.startswith("-") and len(text) > 1:
            letter, value = text[1], text[2:]
            name = SLURM_SHORT.get(letter, letter)
            value_span = Span(span.start + 2, span.end)
            if value.startswith("="):  # -N=2 is the value "=2" to sbatch, which refuses it
                value_span = Span(value_span.start + 1, span.end)
                value = value[1:]
            elif not value and letter not in _SLURM_SHORT_FLAGS and index + 1 < len(words):
                index += 1
                value, value_span = words[index]
                text_end = value_span.end
        else:
            name, value, value_span = text, "", Span(span.end, span.end)
        found.append(
            Directive("slurm", name, _unquoted(value), Span(span.start, text_end), value_span, line.span)
        )
        index += 1
    return found


def _full_name(name: str) -> str:
    """An option's full name: sbatch takes unambiguous beginnings."""
    name = _SLURM_ALIASES.get(name, name)
    if name in _SLURM_NAMES:
        return name
    matching = [full for full in _SLURM_NAMES if full.startswith(name)] if len(name) > 2 else []
    return _SLURM_ALIASES.get(matching[0], matching[0]) if len(matching) == 1 else name


def beginnings(name: str) -> list[str]:
    """The options of sbatch that begin with ``name``; itself alone if it is one."""
    return (
        [name] if name in _SLURM_NAMES else sorted({full for full in _SLURM_NAMES if full.startswith(name)})
    )


def misspelt(name: str) -> str:
    """The option of sbatch that differs from ``name`` by a slip of the pen; "" if none or several do."""
    near = [full for full in _SLURM_NAMES if is_slip(name, full)]
    return near[0] if len(near) == 1 else ""


def _letters(line: DirectiveLine) -> list[Directive]:
    """PBS and LSF: options are letters; PBS's ``-l`` holds a list of resources."""
    found: list[Directive] = []
    words = list(line.words)
    index = 0
    while index < len(words):
        text, span = words[index]
        if not text.startswith("-") or len(text) < 2:
            index += 1
            continue
        if line.scheduler == "lsf":
            letter, value, start = text.lstrip("-"), "", span.end
        else:
            letter, value, start = text[1], text[2:], span.start + 2
        end = span.end
        takes = (
            letter not in _PBS_FLAGS if line.scheduler == "pbs" else letter not in ("x", "H", "K", "I", "Is")
        )
        if not value and takes and index + 1 < len(words) and not words[index + 1][0].startswith("-"):
            index += 1
            value, value_span = words[index]
            start, end = value_span.start, value_span.end
        found.append(
            Directive(
                line.scheduler, letter, _unquoted(value), Span(span.start, end), Span(start, end), line.span
            )
        )
        index += 1
    return found
