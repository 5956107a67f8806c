"""A job script's directives: ``#SBATCH``, ``#PBS``, ``#BSUB``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rankup.check.document import Span
from rankup.check.facts.job.commands import Literal, Value
from rankup.launch_grammar.options import grammar_of
from rankup.launch_grammar.reader import read

_LINE = re.compile(r"^#(SBATCH|PBS|BSUB)(?=[ \t]|$)([^\n]*)", re.M)
_WORD = re.compile(r"""(?:[^\s"'\\]|\\.|"[^"\n]*"|'[^'\n]*')+""")
_UNKNOWN = re.compile(r"[<>{}$%`@\[\]]|\.\.\.|^[xX?]+$|^[A-Z_]{3,}$")

#: Scheduler → the command whose options its directives are.
SUBMIT = {"slurm": "sbatch", "pbs": "qsub", "lsf": "bsub"}


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
    def is_word(self) -> bool:
        """Whether it has no dashes: ``hetjob``, or text that is no option."""
        return self.span.end - self.span.start == len(self.name)

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
    """The options of one line, in order; of SLURM's also words that are none (``hetjob``)."""
    words = [Value((Literal(text, span),)) for text, span in line.words]
    found: list[Directive] = []
    while words:
        parsed = read(grammar_of(SUBMIT[line.scheduler]), words)
        found += [_directive(line, one.option.meaning, one.word, one.value) for one in parsed.given]
        for word in parsed.unknown:
            name, _, value = word.text.lstrip("-").partition("=")
            found.append(_directive(line, name, word, word.after(len(word.text) - len(value))))
        if line.scheduler == "slurm":
            found += [
                _directive(line, word.text, word, word.after(len(word.text))) for word in parsed.rest[:1]
            ]
        words = list(parsed.rest[1:])
    return sorted(found, key=lambda directive: directive.span.start)


def _directive(line: DirectiveLine, name: str, word: Value, value: Value) -> Directive:
    if not word.text.startswith("--"):
        # -N=2 is the value "=2" to sbatch, which refuses it.
        value = value.after(len(value.text) - len(value.text.removeprefix("=")))
    start, end = word.span.start, word.span.end
    span = value.span if value.atoms else Span(end, end)
    return Directive(
        line.scheduler, name, _unquoted(value.text), Span(start, max(end, span.end)), span, line.span
    )


def _unquoted(text: str) -> str:
    return re.sub(r"[\"']|\\(?=.)", "", text)
