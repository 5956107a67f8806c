"""What a launcher starts: one node's share of a ``JobSpec`` now, or all ranks from a job's script (``Start``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from rankup.core import shell
from rankup.core.registry import lookup
from rankup.launchers import LAUNCHERS
from rankup.spec.jobspec import JobSpec

STAGE = "{stage}"

# The tokens that start one node's ranks: of a job, in a run of this id, with these words before each rank's command.
Launcher = Callable[[JobSpec, str, Sequence[str]], list[str]]


def launcher_named(name: str) -> Launcher:
    return cast(Launcher, lookup("launcher", name, LAUNCHERS))


@dataclass(frozen=True)
class Start:
    """How a job's script starts its ranks. Its shell knows MASTER_ADDR, MASTER_PORT and RUN.

    ``command`` is one rank's, ``python`` and ``torchrun`` how these two are called there. ``prefix`` are the tokens
    before a command that take it into a container, and ``options`` those of srun, () without one. ``cpus`` are a
    process's cores, where known, and ``masks`` those next to the GPU of each rank of a node, () where unknown.
    ``carried`` names the variables that mpirun has to take along. ``mpi`` says whose mpirun it is, ``mpi_flags`` what
    the site has instead of our options for mapping and binding. ``staged``: the arguments may name the node's own disk.
    """

    scheduler: str
    command: tuple[str, ...]
    python: str = "python"
    torchrun: str = "torchrun"
    prefix: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    nodes: int = 1
    nproc: int = 1
    cpus: int | None = None
    masks: tuple[str, ...] = ()
    max_restarts: int = 0
    numa_binding: str = ""
    mpi: str = "openmpi"
    mpi_flags: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()
    staged: bool = False

    @property
    def world_size(self) -> int:
        return self.nodes * self.nproc

    @property
    def cpus_per_node(self) -> int | None:
        return None if self.cpus is None else self.cpus * self.nproc


ScriptLauncher = Callable[[Start], list[str]]


# Whole lines with the rank before them, for launchers that would mix the pieces of several ranks' lines. A launcher
# that ends the process group of a rank must not end what still copies its last words: it is born deaf to these signals.
_LABELS = """
      trap "" TERM INT HUP
      exec 3> >(exec sed --unbuffered "s/^/[rank $RANK] /")
      trap - TERM INT HUP"""


def rank_shell(
    start: Start, variables: Mapping[str, str], *, unset: str = "", labelled: bool = False
) -> list[str]:
    """Shell code that gives a rank PyTorch's names for what its launcher calls otherwise, and becomes its command.

    The single quotes matter: outside of the rank's own shell the launcher's variables are not the rank's.
    """
    exports = " ".join(f"{name}={value}" for name, value in variables.items())
    forget = f"\n      unset {unset}" if unset else ""
    labels, output = (_LABELS, " >&3 2>&1 3>&-") if labelled else ("", "")
    script = f'\n      export {exports}{forget}{labels}\n      exec sh "$RUN/rank.sh" "$@"{output}'
    return [f"bash -c {code(script)} rank \\", f"  {' '.join(whole_command(start))}"]


def in_background(launcher: str, ranks: list[str]) -> list[str]:
    """``launcher`` with its options starts ``ranks``; ``workers`` is its process."""
    return [f"{launcher} \\", *(f"  {line}" for line in ranks[:-1]), f"  {ranks[-1]} &", "workers=$!"]


def whole_command(start: Start) -> list[str]:
    """A rank's command, with what takes it into a container, as shell code."""
    first, *rest = start.command
    python = path_code(first) if first == start.python else code(first)
    return [*map(expanded_code, start.prefix), python, *(argument_code(word, start.staged) for word in rest)]


def code(token: str) -> str:
    """``token`` as shell code that means exactly it."""
    return shell.quote([token])


def argument_code(token: str, staged: bool) -> str:
    """A program's argument as shell code; in a job with data on the nodes' disks ``{stage}`` stands for their place."""
    if not staged or STAGE not in token:
        return code(token)
    return '"$RANKUP_STAGE"'.join(code(piece) if piece else "" for piece in token.split(STAGE))


def expanded_code(token: str) -> str:
    """``token`` as shell code; the shell fills in each ``$NAME`` in it."""
    pieces = re.split(r"(\$\w+|\$\{\w+\})", token)
    return "".join(f'"{piece}"' if i % 2 else piece and code(piece) for i, piece in enumerate(pieces)) or "''"


def path_code(token: str) -> str:
    """The same, but for a ``$NAME`` at the beginning only."""
    match = re.match(r"\$(\w+|\{\w+\})", token)
    if match is None:
        return code(token)
    rest = token[match.end() :]
    return f'"{match[0]}"' + (code(rest) if rest else "")
