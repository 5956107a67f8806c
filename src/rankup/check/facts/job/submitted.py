"""Jobs whose text a script itself gives to the scheduler: ``sbatch <<EOF``, ``sbatch --wrap``, a file that it wrote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rankup.check.document import Document, Span
from rankup.check.facts.job.commands import Value, Variable
from rankup.check.facts.job.source import PLACEHOLDER, Source
from rankup.launch_grammar.reader import CommandLine

#: Command → how a directive of its begins.
SUBMITTING = {"sbatch": "#SBATCH --", "qsub": "#PBS -", "bsub": "#BSUB -"}
#: Options after which no text is read.
ONLY_ASKS = frozenset({"help", "version", "usage", "I"})
_NOT_OF_JOB = ("wrap", "parsable", "wait", "quiet", "verbose", "test-only")


@dataclass(frozen=True)
class Submitted:
    """``text`` is submitted by a command (``name``, at ``span``) with options."""

    name: str
    span: Span
    options: CommandLine[Value]
    text: Value


def job_of(document: Document, submitted: Submitted) -> Document:
    """The job as a document of its own, whose lines are those of the script that holds its text."""
    lines = list(_lines(document, submitted.text))
    at = _line(document, submitted.span.start)[1]
    if "wrap" in submitted.options.options:
        lines.insert(0, ("#!/bin/sh", at))
    first = next((i for i, (line, _) in enumerate(lines) if line.strip() and line[:1] != "#"), len(lines))
    given = ((name, value) for name, value in submitted.options.options.items() if name not in _NOT_OF_JOB)
    # Options win over directives: they stand behind them.
    lines[first:first] = [(_directive(submitted.name, name, value.text), at) for name, value in given]
    holder = document.part(submitted.text.span)[0]
    text = "\n".join(line for line, _ in lines) + "\n"
    numbers = (*(number for _, number in lines), lines[-1][1])
    return Document(holder.path, text, document.complete, numbers, holder.cells, holder.indent)


def _directive(command: str, name: str, value: str) -> str:
    value = f'"{value}"' if " " in value else value
    between = "=" if command == "sbatch" else " "
    return f"{SUBMITTING[command]}{name}{between if value else ''}{value}"


def _lines(document: Document, text: Value) -> Iterator[tuple[str, int]]:
    """Each line with its number in the file. It begins in the column that it has there."""
    source, start = Source.of_value(text), 0
    for line in source.text.removesuffix("\n").split("\n"):
        column, number = _line(document, source.span(start, start + 1).start)
        # Nobody knows what the outer shell puts there.
        shown = PLACEHOLDER.sub(lambda found: f"{{{{{_name(source, found[0])}}}}}", line.lstrip("\t"))
        yield " " * column + shown, number
        start += len(line) + 1


def _name(source: Source, placeholder: str) -> str:
    atom = source.atoms[ord(placeholder) - 0xE000]
    return atom.name if isinstance(atom, Variable) else "output"


def _line(document: Document, offset: int) -> tuple[int, int]:
    """The column (from 0) and the number of a line in its file."""
    holder, span = document.part(Span(offset, offset))
    line = holder.line_of(span.start)
    return span.start - holder.starts[line], holder.lines[line] if holder.lines else line + 1
