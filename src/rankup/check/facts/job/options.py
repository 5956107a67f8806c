"""Command lines of a job script, whose words may be known in part only, read by the grammar of launchers."""

from __future__ import annotations

from collections.abc import Sequence

from rankup.check.facts.job.commands import Literal, Value
from rankup.launch_grammar.dialects import MPI, read_mpi
from rankup.launch_grammar.options import grammar_of
from rankup.launch_grammar.reader import CommandLine, read


def parse(command: str, argv: Sequence[Value]) -> CommandLine[Value]:
    """Splits the words after a program's name."""
    if command in MPI:
        return read_mpi(command, argv, _may_be_options)
    return read(grammar_of(command), argv, _may_be_options)


def _may_be_options(word: Value) -> bool:
    """Whether a word from an unknown variable is named like a list of options (``$SRUN_ARGS``, ``${OPTS[@]}``)."""
    if word.head or not word.atoms or isinstance(word.atoms[0], Literal):
        return False
    return any(
        part in variable.name.upper()
        for variable in word.variables()
        for part in ("ARG", "OPT", "FLAG", "PARAM")
    )
