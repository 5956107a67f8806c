"""What launchers say of the end of ranks: torchrun's summary, srun's and mpirun's lines, and rankup's own."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field

from rankup.explain.events import Ending, Quote
from rankup.explain.prefixes import stamp
from rankup.run.failure import Exit

_FIELD = re.compile(r"^\s+(time|host|rank|exitcode|error_file|traceback)\s*: ?(.*)")
_SRUN = re.compile(r"srun: error: (?P<host>\S+): tasks? (?P<tasks>[\d,-]+): (?P<how>.+)")
_MPIRUN = re.compile(
    r"process rank (?P<rank>\d+) with PID \d+ on node (?P<host>\S+) exited on signal (?P<signal>\d+)"
)
# torchrun's agent, deepspeed's launcher, shells and containers, of a process on their own node.
_AGENT = re.compile(
    r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<rank>\d+)"
    r"|(?i:return code = |exit(?:ed)?(?: with)?(?: exit)? (?:code|status):? )(?P<other>-\d+|13[24579])\b"
    r"|(?i:(?:terminated|killed|interrupted) by signal:? )(?P<signal>\d+)\b"
)
_RANKUP = re.compile(
    r"rank (?P<rank>\d+) on (?P<host>\S+) failed first, at .*?: "
    r"(?:exit code (?P<code>\d+)|killed by (?P<signal>SIG\w+))"
)
_HOW = {
    "Killed": -9,
    "Out Of Memory": -9,
    "Terminated": -15,
    "Segmentation fault": -11,
    "Aborted": -6,
    "Bus error": -7,
    "Illegal instruction": -4,
}
_MOST_TASKS = 100_000


def ending_of(text: str, quote: Quote, order: int) -> list[Ending]:
    """The ends of ranks that one line tells; ``order`` stands for the time, which these lines lack."""
    if "srun: error: " in text and (found := _SRUN.search(text)):
        code = re.search(r"exit code (\d+)", found["how"])
        number = (
            _by_signal(int(code[1]))
            if code
            else next((n for how, n in _HOW.items() if how in found["how"]), 1)
        )
        return [
            Ending(Exit(rank, number, order), found["host"], (quote,), launcher="srun")
            for rank in _tasks(found["tasks"])
        ]
    if "exited on signal" in text and (found := _MPIRUN.search(text)):
        exit = Exit(int(found["rank"]), -int(found["signal"]), order)
        return [Ending(exit, found["host"], (quote,), root=True, launcher="mpirun")]
    if found := _AGENT.search(text):
        number = (
            -int(found["signal"]) if found["signal"] else _by_signal(int(found["code"] or found["other"]))
        )
        exit = Exit(int(found["rank"] or 0), number, order)
        return [Ending(exit, "", (quote,), launcher="agent", local=True)]
    if "failed first, at" in text and (found := _RANKUP.search(text)):
        number = -getattr(signal, found["signal"], 0) if found["signal"] else int(found["code"])
        exit = Exit(int(found["rank"]), number, order)
        return [Ending(exit, found["host"], (quote,), root=True, launcher="rankup")]
    return []


def _by_signal(code: int) -> int:
    """A shell's 128 + N of a process that a signal ended as -N: SIGILL, SIGABRT, SIGBUS, SIGKILL, SIGSEGV."""
    return 128 - code if code in (132, 134, 135, 137, 139) else code


def _tasks(text: str) -> list[int]:
    tasks: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (not last or last.isdecimal()):
            begin, end = int(first), int(last or first)
            tasks += range(begin, min(end, begin + _MOST_TASKS) + 1)
    return tasks


@dataclass
class Summary:
    """Follows torchrun's summary in one stream. ``rank`` is that of the entry whose traceback is being printed."""

    active: bool = False
    rank: int | None = None
    _root: bool = False
    _entry: dict[str, tuple[str, Quote]] = field(default_factory=dict)
    _done: list[Ending] = field(default_factory=list)

    def feed(self, text: str, quote: Quote) -> bool:
        """Whether the line belongs to a summary, and is not a line of a traceback in it."""
        stripped = text.strip()
        if stripped in ("Failures:", "Root Cause (first observed failure):"):
            self._flush()
            self.active, self._root = True, stripped.startswith("Root")
            return True
        if not self.active:
            return False
        if re.fullmatch(r"\[\d+\]:", stripped):
            self._flush()
            return True
        if stripped.startswith("====="):
            self._flush()
            self.active = False
            return True
        found = _FIELD.match(text)
        if found is None:
            return not text[:1].isspace() and stripped.startswith(("<NO_OTHER", "-----"))
        self._entry[found[1]] = (found[2], quote)
        if found[1] == "rank":
            number = re.match(r"\d+", found[2])
            self.rank = int(number[0]) if number else None
        return found[1] != "traceback" or "Traceback (most recent" not in found[2]

    def take(self) -> list[Ending]:
        done, self._done = self._done, []
        return done

    def end(self) -> list[Ending]:
        self._flush()
        return self.take()

    def _flush(self) -> None:
        entry, rank = self._entry, self.rank
        self._entry, self.rank = {}, None
        code = re.match(r"-?\d+", entry["exitcode"][0]) if "exitcode" in entry else None
        if rank is None or code is None:
            return
        time = stamp(entry["time"][0]) if "time" in entry else None
        quotes = tuple(entry[name][1] for name in ("rank", "exitcode", "traceback") if name in entry)
        host = entry["host"][0].strip() if "host" in entry else ""
        self._done.append(Ending(Exit(rank, int(code[0]), time or 0.0), host, quotes, self._root))
