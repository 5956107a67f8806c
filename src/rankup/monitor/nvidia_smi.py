"""The log of ``nvidia-smi`` that a job's script writes where rankup is not on the nodes: its lines → samples. No I/O.

The log may be cut anywhere, begin in the middle, and hold several headers: each attempt of a job appends its own. What
is not a whole row of the columns above it is passed over; a value that is not a number (``[N/A]``, ``[Not Supported]``,
``[Unknown Error]``) is not told.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from typing import Any

#: What the script asks for, in this order; the header is far away when only the end of a log is read.
COLUMNS = (
    *("timestamp", "index", "uuid", "utilization.gpu", "memory.used", "memory.total", "power.draw"),
    "temperature.gpu",
)
_TIME = re.compile(r"(\d{4})/(\d\d)/(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?", re.ASCII)
_HEADER = "timestamp,"
_MIB = 1 << 20
_MOST_TIME = 60.0  # seconds between the rows of one round
_MOST_INDEX = 1 << 16
_BEGIN, _END = "nvidia-smi-", ".csv"
Record = dict[str, Any]


def is_log(name: str) -> bool:
    """Whether a file of this name in the records is such a log."""
    return name.startswith(_BEGIN) and name.endswith(_END)


def host_of(name: str) -> str:
    """``n1`` of ``nvidia-smi-n1.csv``."""
    return name.removeprefix(_BEGIN).removesuffix(_END)


class SmiLog:
    """The log of one host. ``add`` takes its lines in order, and gives the samples that they complete.

    A sample is one round: a row for each GPU. It is complete with the first row of the next round, or when all GPUs
    have told that have told before.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._columns: tuple[str, ...] = COLUMNS
        self._round: list[tuple[float, Record]] = []
        self._known: set[int] = set()  # the GPUs of the rounds since the header

    def add(self, lines: Iterable[bytes]) -> Iterator[Record]:
        for line in lines:
            text = line.decode(errors="replace")
            at = text.find(_HEADER)
            if at >= 0:  # what stands before it is a line that a kill has cut
                yield from self._end()
                self._columns, self._known = _names(text[at:]), set()
                continue
            row = _row(text, self._columns)
            if row is None:
                continue
            if self._round and not self._continues(row):
                yield from self._end()
            self._round.append(row)
            if self._known and self._known <= {gpu["index"] for _, gpu in self._round}:
                yield from self._end()

    def _continues(self, row: tuple[float, Record]) -> bool:
        time, gpu = self._round[-1]
        return bool(row[1]["index"] > gpu["index"]) and abs(row[0] - time) < _MOST_TIME

    def _end(self) -> Iterator[Record]:
        if not self._round:
            return
        gpus = [gpu for _, gpu in self._round]
        yield {"kind": "sample", "time": self._round[0][0], "host": self._host, "gpus": gpus}
        self._known |= {gpu["index"] for gpu in gpus}
        self._round = []


def _names(header: str) -> tuple[str, ...]:
    """``utilization.gpu [%]`` is the column ``utilization.gpu``."""
    return tuple((word.split() or [""])[0] for word in header.split(","))


def _row(line: str, columns: tuple[str, ...]) -> tuple[float, Record] | None:
    """(time, GPU) of a whole row; None for anything else."""
    words = [word.strip() for word in line.split(",")]
    if len(words) != len(columns):
        return None
    values = dict(zip(columns, words, strict=True))
    time, index = _time(values.get("timestamp", "")), values.get("index", "")
    if time is None or not (index.isascii() and index.isdigit() and int(index[:9]) < _MOST_INDEX):
        return None
    uuid = values.get("uuid", "")
    gpu: Record = {"index": int(index[:9]), "uuid": uuid if uuid.startswith("GPU-") else None}
    for name, (column, convert) in _VALUES.items():
        told = _number(values.get(column, ""))
        gpu[name] = None if told is None else convert(told)
    return time, gpu


_VALUES: dict[str, tuple[str, Callable[[float], float]]] = {
    "utilization": ("utilization.gpu", float),
    "memory_bytes": ("memory.used", lambda mib: mib * _MIB),
    "memory_total": ("memory.total", lambda mib: mib * _MIB),
    "power_w": ("power.draw", float),
    "temperature_c": ("temperature.gpu", float),
}


def _time(text: str) -> float | None:
    """Epoch seconds of ``2026/03/01 10:15:00.250``, in UTC."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    *parts, fraction = match.groups()
    try:
        whole = datetime(*map(int, parts), tzinfo=timezone.utc).timestamp()  # type: ignore[arg-type,misc]
    except ValueError:
        return None
    return whole + float(f"0.{fraction or 0}")


def _number(text: str) -> float | None:
    """With or without its unit (``80``, ``80 %``, ``512 MiB``)."""
    try:
        value = float(text.split()[0])
    except (IndexError, ValueError):
        return None
    return value if math.isfinite(value) and value >= 0 else None
