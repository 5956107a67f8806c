"""A signature, as data: a text that torch, NCCL, a scheduler or the system prints, what it means and what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property


class Level(IntEnum):
    """How much an event explains. The highest level that a log has is taken for the cause.

    ``NOISE`` is not a failure. ``FALLOUT`` follows from the failure of another rank. ``WEAK`` is the cause only if
    nothing stronger is found: somebody waited in vain, or was ended from outside. ``ROOT`` is an error of its own.
    """

    NOISE = 0
    FALLOUT = 1
    WEAK = 2
    ROOT = 3


@dataclass(frozen=True)
class Signature:
    """``what`` completes "rank 3 failed: …"; ``cause`` and ``fix`` say why and what to do.

    ``rules`` are the codes of `rankup check` that find the mistake before the job. ``example`` is a line that must
    match. ``likely``: the cause is probable, not sure. ``exits`` are the exit codes of a rank (negative: a signal)
    that this explains. ``better`` names signatures that explain this one, if the log has them.
    ``of_all``: the failure is between ranks, and the one that says it is not the one that caused it.
    ``setup``: a mistake before the program starts. Scripts often go on after it, and rightly so: it is the cause only
    of what names it as ``better``, or if nothing else is found.
    """

    name: str
    pattern: str
    level: Level
    what: str
    cause: str
    fix: str
    example: str
    rules: tuple[str, ...] = ()
    likely: bool = False
    exits: tuple[int, ...] = ()
    better: tuple[str, ...] = ()
    of_all: bool = False
    setup: bool = False

    @cached_property
    def regex(self) -> re.Pattern[str]:
        return re.compile(self.pattern)


ROOT, WEAK, FALLOUT, NOISE = Level.ROOT, Level.WEAK, Level.FALLOUT, Level.NOISE
LOOK_AT_PEERS = "the error is in the log of another rank: look for the first traceback or kill there"

# Failures that no table names.
PYTHON_EXCEPTION = Signature(
    name="python-exception",
    pattern=r"(?!)",
    level=ROOT,
    what="",
    cause="the script raised an exception that nothing caught",
    fix="begin at the quoted line of the script, the last of its own before the exception",
    example="",
)
ERROR_LINE = Signature(
    name="unknown",
    pattern=r"(?!)",
    level=WEAK,
    what="",
    cause="no known failure is in the log",
    fix="read the lines around the quoted one, which is the first that looks like an error",
    example="",
    likely=True,
)
EXIT_CODE = Signature(
    name="unknown",
    pattern=r"(?!)",
    level=ROOT,
    what="",
    cause="the process ended with that code, and wrote no error that is known",
    fix="look at the last lines of that rank; `torchrun --log-dir logs --redirects 3` keeps them in files of their own",
    example="",
    likely=True,
)
