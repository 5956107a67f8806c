"""A signature, as data: a text that torch, NCCL, a scheduler or the system prints, what it means and what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property


class Level(IntEnum):
    """The weight of an event as evidence. The highest that a log has decides, and among equals the first in order.

    ``NOISE`` is not a failure. ``REPORT`` is a launcher's or a shell's word that something ended, without a cause.
    ``FALLOUT`` says that another rank was lost. ``WEAK`` is the cause only if nothing stronger is found: somebody
    waited in vain, or was ended from outside. ``ROOT`` is an error of its own.
    """

    NOISE = 0
    REPORT = 1
    FALLOUT = 2
    WEAK = 3
    ROOT = 4


@dataclass(frozen=True)
class Signature:
    """``what`` completes "rank 3 failed: …"; ``cause`` and ``fix`` say why and what to do.

    ``rules`` are those of `rankup check` that find the mistake before the job, by code and name. ``example`` is a line
    that must match. ``likely``: the cause is probable, not sure. ``exits`` are the exit codes of a rank (negative: a
    signal) that this explains. ``better`` names signatures that explain this one, if the log has them.
    ``of_all``: the failure is between ranks, and the one that says it is not the one that caused it.
    ``setup``: a mistake before the program starts. Scripts often go on after it, and rightly so: it is the cause only
    of what names it as ``better``, or if nothing else is found.
    ``bare``: it says that a process died, not why. Any event that ends processes so (``exits``) and says why is better.
    ``warned``: it is a failure, although its logger calls it a warning.
    ``places``: files of packages; an exception that such a file raises itself is one of these, if no pattern knows it.
    ``may_be``: a text that matches this, and not ``pattern``, has other causes too, which want another remedy.
    """

    name: str
    pattern: str
    what: str
    cause: str
    fix: str
    example: str
    level: Level = Level.ROOT
    rules: tuple[str, ...] = ()
    likely: bool = False
    exits: tuple[int, ...] = ()
    better: tuple[str, ...] = ()
    of_all: bool = False
    setup: bool = False
    bare: bool = False
    warned: bool = False
    places: tuple[str, ...] = ()
    may_be: str = ""

    @cached_property
    def regex(self) -> re.Pattern[str]:
        return re.compile("|".join(filter(None, (self.pattern, self.may_be))))

    @cached_property
    def perhaps(self) -> Signature:
        """The same as a probable cause."""
        return replace(self, likely=True)


# Failures that no table names.
PYTHON_EXCEPTION = Signature(
    name="python-exception",
    pattern=r"(?!)",
    what="",
    cause="the script raised an exception that nothing caught",
    fix="begin at the quoted line of the script, the last of its own before the exception",
    example="",
    better=(
        "disk-full",
        "oom-kill",
        "pbs-memory",
        "lsf-memory",
        "submit-unexplained",
    ),  # in words of their own
)
UNEXPECTED = replace(
    PYTHON_EXCEPTION,
    cause="the quoted line met what it does not expect: other data, another option, or another version of a package",
    likely=True,
)
EXCEPTION_LINE = replace(
    PYTHON_EXCEPTION,
    fix="its traceback is not in the log: look for it in the logs of the ranks",
    likely=True,
)
CUT_OFF = Signature(
    name="unknown",
    pattern=r"(?!)",
    level=Level.REPORT,
    what="the log ends inside a traceback",
    cause="the exception that ended the process is not in this log",
    fix="look in the other logs of the job; the quoted line is the last that ran",
    example="",
    likely=True,
)
ERROR_LINE = Signature(
    name="unknown",
    pattern=r"(?!)",
    level=Level.WEAK,
    what="",
    cause="no known failure is in the log",
    fix="read the lines around the quoted one, which is the first that looks like an error",
    example="",
    likely=True,
)
EXIT_CODE = Signature(
    name="unknown",
    pattern=r"(?!)",
    what="",
    cause="the process ended with that code, and wrote no error that is known",
    fix="look at the last lines of that rank; `torchrun --log-dir logs --redirects 3` keeps them in files of their own",
    example="",
    likely=True,
)
