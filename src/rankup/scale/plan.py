"""Which runs a study consists of, and in which order: its grid, its warm-ups, and its repeats.

A study is written down before it begins (``study.json``), so that it can go on after an interruption.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankup.core.nearest import did_you_mean
from rankup.errors import RankupError

# Keys of a grid: fields of the job, and options of a training. A script takes the latter by {key} in its arguments.
JOB_KEYS = {
    "nodes": "nodes",
    "nproc": "nproc_per_node",
    "gpus": "gpus_per_node",
    "cpus-per-task": "cpus_per_task",
    "launcher": "launcher",
}
TRAINING_KEYS = {
    "strategy": "strategy",
    "precision": "precision",
    "device": "device",
    "global-batch": "global_batch",
    "accumulate": "accumulate",
    "exact": "exact",
}
_COUNTS = (*JOB_KEYS.keys() - {"launcher"}, "global-batch", "accumulate")
_PLACEHOLDER = re.compile(r"\{([A-Za-z][A-Za-z0-9_-]*)\}")
PROCESSES = "processes"  # over all nodes: a placeholder that is not a key of the grid
MOST_CONFIGURATIONS = 500

Value = str | int
Point = tuple[tuple[str, Value], ...]


@dataclass(frozen=True)
class Trial:
    """One run of a study. ``point`` is its configuration, by the keys of the grid; ``repeat`` counts from 1, and 0 is
    the warm-up, which is not timed."""

    point: Point
    repeat: int

    @property
    def asked(self) -> dict[str, Value]:
        return dict(self.point)

    @property
    def processes(self) -> int:
        """Over all nodes; GPUs stand for processes if only they are given."""
        asked = self.asked
        return int(asked.get("nodes", 1)) * int(asked.get("nproc", asked.get("gpus", 1)))

    @property
    def name(self) -> str:
        """``nproc=2, cpus-per-task=1``."""
        return ", ".join(f"{key}={value}" for key, value in self.point)


def parse_grid(words: Sequence[str], *, placeholders: Sequence[str] = ()) -> dict[str, tuple[Value, ...]]:
    """``["nproc=1,2", "strategy=dp,ddp"]`` → key → values, in the order given.

    ``placeholders`` are further keys, that a script's arguments name. Raises RankupError for anything else.
    """
    grid: dict[str, tuple[Value, ...]] = {}
    known = (*JOB_KEYS, *TRAINING_KEYS, *placeholders)
    for word in words:
        if not word.strip():
            raise _bad_grid("the grid is empty", "--grid", "e.g. --grid nproc=1,2")
        key, equals, text = word.partition("=")
        written = [value.strip() for value in text.split(",")]
        if not equals or not all(written):
            raise _bad_grid(
                f"{word!r} is not KEY=VALUE,VALUE,…", word, "e.g. --grid nproc=1,2 cpus-per-task=1,2"
            )
        if key not in known:
            hint = f"one of: {', '.join(known)}; other keys stand as {{key}} in the script's arguments"
            raise _bad_grid(f"unknown key {key!r}{did_you_mean(key, known)}", word, hint)
        if key in grid:
            raise _bad_grid(f"{key} is given twice", word, f"--grid {key}=…,…")
        values = tuple(_value(key, value, word) for value in written)
        if repeated := [value for value in values if values.count(value) > 1]:
            raise _bad_grid(f"{key}={repeated[0]} is given twice", word, "--repeats sets how often each runs")
        grid[key] = values
    if not grid:
        raise _bad_grid("the grid is empty", "--grid", "e.g. --grid nproc=1,2")
    if _size(grid) > MOST_CONFIGURATIONS:
        raise _bad_grid(
            f"the grid has {_size(grid)} configurations, at most {MOST_CONFIGURATIONS} are allowed",
            " ".join(words),
            "fewer values, or several studies",
        )
    return grid


def points(grid: Mapping[str, Sequence[Value]]) -> list[Point]:
    """All configurations of ``grid``, in its order: the last key varies fastest."""
    return [tuple(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def trials(configurations: Sequence[Point], repeats: int, *, seed: int = 0) -> list[Trial]:
    """A warm-up of each configuration, then ``repeats`` rounds.

    The first round is in the order of the grid, so that larger sizes can be predicted from smaller ones before they
    run; each later one is in a random order of its own, so that what changes slowly on a machine (its temperature,
    others' work) hits all configurations alike.
    """
    if repeats < 1:
        raise RankupError(
            "bad-repeats", f"--repeats must be at least 1, got {repeats}", hint="3 or more tell a spread"
        )
    generator = random.Random(seed)
    order = [Trial(point, 0) for point in configurations]
    for repeat in range(1, repeats + 1):
        shuffled = list(configurations)
        if repeat > 1:
            generator.shuffle(shuffled)
        order += [Trial(point, repeat) for point in shuffled]
    return order


def placeholders_in(arguments: Sequence[str]) -> list[str]:
    """The keys that ``arguments`` name as ``{key}``."""
    found = dict.fromkeys(key for word in arguments for key in _PLACEHOLDER.findall(word))
    return [key for key in found if key != PROCESSES]


def fill_in(arguments: Sequence[str], trial: Trial) -> tuple[str, ...]:
    """``arguments`` with ``{key}`` replaced by the trial's value; ``{processes}`` is their number over all nodes."""
    values = {**trial.asked, PROCESSES: trial.processes}
    return tuple(
        _PLACEHOLDER.sub(lambda found: str(values.get(found[1], found[0])), word) for word in arguments
    )


def _size(grid: Mapping[str, Sequence[Value]]) -> int:
    size = 1
    for values in grid.values():
        size *= len(values)
    return size


def _value(key: str, value: str, word: str) -> Value:
    if key not in _COUNTS:
        return value
    count = int(value) if value.isascii() and value.isdecimal() else 0
    if count < 1:
        raise _bad_grid(
            f"{key} must be whole numbers of at least 1, got {value!r}", word, f"e.g. --grid {key}=1,2"
        )
    return count


def _bad_grid(message: str, word: str, hint: str) -> RankupError:
    return RankupError("bad-grid", message, context=f"--grid {word}" if word != "--grid" else "", hint=hint)


def count_of(processes: int) -> str:
    """``1 process``, ``2 processes``."""
    return f"{processes} process" + ("es" if processes != 1 else "")
