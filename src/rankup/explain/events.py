"""What happened, as data: events of a log, the lines that show them, and what launchers said of exits."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rankup.explain.signatures.signature import Level, Signature
from rankup.run.failure import Exit

_DIGITS = re.compile(r"0x[0-9a-f]+|\d+")


@dataclass(frozen=True)
class Quote:
    """A line of a log, as it stands there."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


@dataclass
class Event:
    """A signature that was met, or an exception. ``order`` counts over all lines that were read, ``time`` is in
    seconds of a year if a line tells it; ``after`` counts ordinary lines of the same stream that came later.
    """

    signature: Signature
    quotes: list[Quote]
    said: str  # the line that names the failure
    order: int
    file: str
    rank: int | None = None
    host: str = ""
    time: float | None = None
    warning: bool = False
    traceback: bool = False
    labelled: bool = False  # its stream is that of one rank
    after: int = 0
    count: int = 1
    others: set[int] = field(default_factory=set)  # ranks that said the same

    @property
    def level(self) -> Level:
        return self.signature.level

    @property
    def kind(self) -> str:
        """What was said without its numbers: the same on each rank that failed in the same way."""
        return _DIGITS.sub("0", self.said)

    @property
    def survived(self) -> bool:
        """Whether the program went on after it: it was caught and logged."""
        return self.after >= (10 if self.labelled else 50)


@dataclass(frozen=True)
class Ending:
    """What a launcher said of the end of one rank. ``root``: it saw that this one was the first. ``local``: its rank is
    that on its node."""

    exit: Exit
    host: str
    quotes: tuple[Quote, ...]
    root: bool = False
    launcher: str = "torchrun"
    local: bool = False


@dataclass(frozen=True)
class Stuck:
    """What a watchdog of NCCL says: ``rank`` waited in collective ``seq`` of a group, and had begun ``enqueued``."""

    rank: int
    seq: int | None
    op: str
    enqueued: int | None
    group: str
    quote: Quote


@dataclass
class Facts:
    """All that the logs of a job say. ``suspect`` is the first line that looks like an error, near the end."""

    events: list[Event] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    left: list[Ending] = field(default_factory=list)  # ranks that ended with 0 before the first failure
    watchdog: list[Stuck] = field(default_factory=list)
    suspects: list[Event] = field(default_factory=list)
    last: list[tuple[int | None, list[Quote]]] = field(default_factory=list)  # of each file, with its rank
    ranks: set[int] = field(default_factory=set)
    failed_rank: int | None = None  # as the run directory tells, if there is one
    failed: bool = False  # whether something outside the logs says that the job failed
    notes: list[str] = field(default_factory=list)
