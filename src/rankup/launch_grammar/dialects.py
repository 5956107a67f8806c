"""mpirun and mpiexec are names of several programs: which one a command line is for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rankup.launch_grammar.options import grammar_of
from rankup.launch_grammar.reader import CommandLine, W, read, read_text

FAMILIES = {"openmpi": "Open MPI", "hydra": "Hydra (MPICH, Intel MPI)", "pals": "PALS (HPE Cray)"}
#: Command → whose it may be, the likeliest first.
MPI = {
    "mpirun": ("openmpi", "hydra"),
    "mpirun.openmpi": ("openmpi",),
    "orterun": ("openmpi",),
    "prun": ("openmpi",),
    "mpiexec": ("pals", "openmpi", "hydra"),
    "mpiexec.hydra": ("hydra",),
    "mpirun_rsh": ("mpirun_rsh",),
}


def read_mpi(command: str, words: Sequence[W], skips: Callable[[W], bool]) -> CommandLine[W]:
    """The words after ``mpirun`` and the like, as the family reads them that knows most of the options."""
    lines = [read(grammar_of(family), words, skips) for family in MPI[command]]
    return min(lines, key=lambda line: len(line.unknown))


def families_of(words: Sequence[str]) -> list[str]:
    """The families that know all options of a command line."""
    return [family for family in FAMILIES if not read_text(family, words).unknown]
