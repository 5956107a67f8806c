"""What the devices of a run did, over all of its attempts: goodput, and where the rest went.

``python -m rankup.core.goodput RUN`` prints the line and writes ``goodput.json``; the script of a job calls it at the
end. Each figure is defined in docs/reference/goodput.md.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from rankup.core.files import write_atomic
from rankup.core.records import read_records
from rankup.core.units import duration

FILE = "goodput.json"
_TIME = re.compile(rb'"time": (\d+)')
_ID_OF_RUN = re.compile(r"(\d{8}-\d{6})-[0-9a-f]{4}")


@dataclass(frozen=True)
class Goodput:
    """Device-seconds: ``trained + evaluating + saving + starting + lost + other`` is all that the run held. ``queue``:
    seconds that the run waited for its nodes; None outside of a scheduler."""

    attempts: int
    trained: float
    evaluating: float
    saving: float
    starting: float
    lost: float
    other: float
    queue: float | None

    @property
    def held(self) -> float:
        return sum(float(getattr(self, name)) for name in KINDS)

    @property
    def share(self) -> float:
        """Goodput: what was trained, and not lost, of all that was held."""
        return self.trained / self.held if self.held > 0 else 0.0

    def __add__(self, other: Goodput) -> Goodput:
        both = {name: getattr(self, name) + getattr(other, name) for name in ("attempts", *KINDS)}
        known = [one.queue for one in (self, other) if one.queue is not None]
        return Goodput(**both, queue=sum(known) if known else None)

    def as_dict(self) -> dict[str, Any]:
        rounded = {name: None if value is None else round(value, 1) for name, value in asdict(self).items()}
        return {**rounded, "held": round(self.held, 1), "goodput": round(self.share, 4)}

    def line(self) -> str:
        """For people: in device-hours, or in device-seconds if it is less than one hour."""
        unit, size = ("hours", 3600) if self.held >= 3600 else ("seconds", 1)
        parts = [
            f"{name} {_digits(getattr(self, name) / size)}" for name in KINDS[1:] if getattr(self, name) > 0
        ]
        attempts = f"{self.attempts} attempt{'' if self.attempts == 1 else 's'}"
        return (
            f"goodput {self.share:.1%} over {attempts}: trained {_digits(self.trained / size)} of "
            f"{_digits(self.held / size)} device-{unit} ({', '.join(parts)})"
            + ("" if self.queue is None else f"; queue: {duration(self.queue)}")
        )


#: What device-seconds were spent on, in the order of the columns.
KINDS = tuple(field.name for field in fields(Goodput) if field.name not in ("attempts", "queue"))
_SPENT = ("trained", "evaluating", "saving")  # what records tell


def hours(seconds: float) -> str:
    """Device-hours of device-seconds."""
    return _digits(seconds / 3600)


def _digits(value: float) -> str:
    """Three digits that say something."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def goodput_of(
    run: Path,
    records: Iterable[dict[str, Any]] | None = None,
    *,
    since: float = 0.0,
    until: float = float("inf"),
) -> Goodput | None:
    """Of the run in the directory ``run``, until now if it goes on; of the attempts that began from ``since`` to before
    ``until`` (epoch seconds). ``records``: of its steps and epochs, if they have been read. None if no attempt of it
    told what it did: only programs that use rankup do."""
    starts = _starts(run / "attempts")
    if not starts:
        return None
    if records is None:
        files = (run / "records" / name for name in ("steps.jsonl", "epochs.jsonl"))
        records = itertools.chain.from_iterable(map(read_records, files))
    told = _with_kept(one for one in records if "spent" in one)
    devices = [
        (float(one["time"]), int(one["facts"]["world_size"])) for one in told if one["kind"] == "begin"
    ]
    if not devices:
        return None
    signs = _signs_of_life(run)
    queued = not re.search(r"@", (run / "attempts").read_text().split()[1])
    total: Goodput | None = None
    end = _submitted(run) if queued else None
    for number, start in enumerate(starts):
        after = starts[number + 1] if number + 1 < len(starts) else None
        waited = None if not queued else max(start - end, 0.0) if end is not None else 0.0
        end = _end(run, start, after, signs)
        if not since <= start < until:
            continue
        mine = [one for one in told if start <= float(one["time"]) < (after or float("inf"))]
        width = next((size for at, size in reversed(devices) if at < end), devices[0][1])
        failed = after is not None or _word(run) == "failed"
        one = _attempt(mine, width=width, start=start, end=end, failed=failed)
        one = replace(one, queue=waited)
        total = one if total is None else total + one
    return total


def _attempt(
    mine: Sequence[dict[str, Any]], *, width: int, start: float, end: float, failed: bool
) -> Goodput:
    """Of one attempt on ``width`` devices, from its records. ``failed``: another attempt followed, or the run has
    failed."""
    held = max(end - start, 0.0) * width
    if not mine:
        lost = held if failed else 0.0
        return Goodput(1, 0.0, 0.0, 0.0, held - lost, lost, 0.0, None)
    kept, spent = dict.fromkeys(_SPENT, 0.0), 0.0
    for training in {one.get("training", "") for one in mine}:
        ours = [one for one in mine if one.get("training", "") == training]
        for what in _SPENT:
            kept[what] += ours[-1]["kept"][what] - ours[0]["kept"][what]
            spent += sum(
                after["spent"][what] - before["spent"][what]
                for before, after in itertools.pairwise(ours)
                if after["kind"] != "begin"
            )
    starting = min(max(float(mine[0]["time"]) - start, 0.0) * width, held)
    redone = max(round(spent - sum(kept.values()), 3), 0.0)  # records are as exact as that
    untold = max(end - float(mine[-1]["time"]), 0.0) * width if failed else 0.0
    rest = held - starting - redone - untold - sum(kept.values())
    # Two clocks: what they disagree by is taken off what was not told.
    lost = redone + max(untold + min(rest, 0.0), 0.0)
    return Goodput(1, **kept, starting=starting, lost=lost, other=max(rest, 0.0), queue=None)


def _with_kept(told: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """``told`` in its order, each with what is ``kept`` of the ``spent``: no later loop has begun with less."""
    least: dict[tuple[str, str], float] = {}
    kept: list[dict[str, Any]] = []
    for one in sorted(told, key=lambda one: float(one["time"]), reverse=True):
        training, now = one.get("training", ""), {}
        for what in _SPENT:
            now[what] = min(one["spent"][what], least.get((training, what), float("inf")))
            if one["kind"] == "begin":
                least[training, what] = now[what]
        kept.append({**one, "kept": now})
    return kept[::-1]


def _starts(path: Path) -> list[float]:
    """When each attempt began."""
    with contextlib.suppress(OSError):
        lines = [line.split() for line in path.read_text().splitlines()]
        return [float(words[2]) for words in lines if len(words) > 2 and words[2].isdecimal()]
    return []


def _signs_of_life(run: Path) -> list[int]:
    """The times of all that rank 0 told. Its thread also tells while the training waits for a rank that is dead."""
    names = ("rank-0.jsonl", "steps.jsonl", "epochs.jsonl")
    texts = [path.read_bytes() for name in names if (path := run / "records" / name).exists()]
    return sorted(int(found) for text in texts for found in _TIME.findall(text))


def _end(run: Path, start: float, after: float | None, signs: Sequence[int]) -> float:
    """Of the attempt that began at ``start``: what its script wrote last, or the last that rank 0 told."""
    if after is None:
        with contextlib.suppress(OSError):
            return (run / "exit_code").stat().st_mtime
        return time.time()
    return max((sign for sign in signs if start <= sign < after), default=start)


def _submitted(run: Path) -> float | None:
    """The id of a run begins with the time of its submission; a task's is that of its array."""
    for name in (run.name, run.parent.name):
        if found := _ID_OF_RUN.fullmatch(name):
            return time.mktime(time.strptime(found[1], "%Y%m%d-%H%M%S"))
    return None


def _word(run: Path) -> str:
    with contextlib.suppress(OSError):
        return (run / "outcome").read_text().strip()
    return ""


def runs_below(root: Path) -> Iterator[Path]:
    """The directories of all runs below ``root``, and ``root`` itself if it is one."""
    for folder, below, files in os.walk(root):
        if "attempts" in files and "records" in below:
            yield Path(folder)
        # The tasks of an array are in its directory.
        below[:] = sorted(name for name in below if name not in ("records", "logs", "snapshots", ".git"))


def write_goodput(run: Path) -> Goodput | None:
    """Keep it as ``goodput.json``."""
    found = goodput_of(run)
    if found is not None:
        with contextlib.suppress(OSError):
            write_atomic(run / FILE, json.dumps(found.as_dict(), indent=2) + "\n", mode=0o600)
    return found


if __name__ == "__main__":
    if found := write_goodput(Path(sys.argv[1])):
        print(f"==== rankup: {found.line()}")
