"""Which steps each attempt of a job trained: read from the traces that its processes have left."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rankup.core.records import read_records

# State that is not trained, and may hold a clock.
_TAIL = 4 << 20  # bytes: more than a step of the largest models leaves
_ASIDE = ("registered/", "metrics/")


@dataclass
class Start:
    """One start of the training within an attempt: a launcher may start it again without the batch system.

    ``began``: the steps that were done when it began, counted over all attempts; ``saves``: after which steps it saved.
    """

    attempt: int
    began: int
    restored: str  # nothing: with weights of no step before
    last: int
    time: float  # epoch seconds
    saves: list[int] = field(default_factory=list)
    ended: bool = False  # without an error; maybe it was asked to stop
    state: dict[str, str] = field(default_factory=dict)  # digests, at the end
    size: float = 0.0  # the sum of the weights' absolute values
    seconds: list[float] = field(default_factory=list)  # between steps


def read_starts(attempts: Path) -> list[Start]:
    """All starts so far, by attempt, as rank 0 saw them; without those that trained no step."""
    folders = sorted(
        (path for path in attempts.iterdir() if path.name.isdigit()), key=lambda path: int(path.name)
    )
    return [start for folder in folders for start in _of_attempt(int(folder.name), folder / "rank-0.jsonl")]


def last_step(attempts: Path) -> int:
    """The last step of the newest attempt, by the end of its trace alone: it is asked for once a second."""
    newest = max(
        (path for path in attempts.glob("[0-9]*/rank-0.jsonl")),
        key=lambda path: path.stat().st_mtime,
        default=None,
    )
    if newest is None:
        return 0
    with newest.open("rb") as file:
        file.seek(max(0, newest.stat().st_size - _TAIL))
        steps = re.findall(rb'"kind": "step".*?"step": (\d+)', file.read())
    return int(steps[-1]) if steps else 0


def last_rank(attempt: Path) -> int:
    """The highest rank that was traced."""
    return max((int(path.stem.partition("-")[2]) for path in attempt.glob("rank-*.jsonl")), default=0)


def _of_attempt(attempt: int, trace: Path) -> list[Start]:
    starts: list[Start] = []
    before: float | None = None
    for record in read_records(trace):
        kind, step = record["kind"], int(record.get("step", 0))
        if kind == "begin":
            # A loop that follows another one in the same process begins where that one has ended.
            if not starts or step != starts[-1].last:
                starts.append(Start(attempt, step, record.get("restored", ""), step, record["time"]))
            before = None
        elif kind == "step" and starts:
            _add_step(starts[-1], record, step, before)
            before = record["time"]
        elif kind == "exit" and starts:
            starts[-1].ended, starts[-1].state = True, _state(record)
            starts[-1].size = float(record.get("size", starts[-1].size))
            starts[-1].saves += [step] if record.get("saved") else []
    return starts


def _add_step(start: Start, record: dict[str, Any], step: int, before: float | None) -> None:
    start.last, start.size, start.state = step, float(record.get("size", 0.0)), _state(record)
    if record.get("saved"):
        start.saves.append(step - 1)
    if before is not None:
        start.seconds.append(record["time"] - before)


def _state(record: dict[str, Any]) -> dict[str, str]:
    return {name: digest for name, digest in record["state"].items() if not name.startswith(_ASIDE)}


@dataclass(frozen=True)
class Training:
    """All starts of one job, and of those that followed it. ``steps``: of the uninterrupted training; 0 in itself."""

    starts: tuple[Start, ...]
    steps: int = 0

    @property
    def last(self) -> int:
        return max((start.last for start in self.starts), default=0)

    @property
    def done(self) -> bool:
        return self.end is not None

    @property
    def end(self) -> Start | None:
        """The latest start that came to the end of the training."""
        ended = (start for start in reversed(self.starts) if start.ended)
        return next((start for start in ended if start.last >= self.steps), None)

    @property
    def lost(self) -> int:
        """How many steps were trained more than once."""
        return sum(start.last - start.began for start in self.starts) - self.last

    @property
    def saves(self) -> list[int]:
        return sorted({save for start in self.starts for save in start.saves if save > 0})

    @property
    def step_seconds(self) -> float:
        times = [each for start in self.starts for each in start.seconds]
        return median(times) if times else 0.0


def training(attempts: Path, steps: int = 0) -> Training:
    return Training(tuple(read_starts(attempts)), steps)
