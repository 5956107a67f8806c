"""What was measured: sizes and their rates, from a study, a CSV file or the command line. What is wrong is refused."""

from __future__ import annotations

import csv
import math
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from rankup.errors import RankupError
from rankup.scale.results import Configuration, Measured, StudyResults

# Relative, of a measurement without repeats: what repeats spread by on real clusters, at the median.
USUAL_SPREAD = 0.008

_SIZE = re.compile(r"(?:(?P<nodes>\d+)x)?(?P<count>\d+)")
_EXAMPLE = '--points "1:348.6 4:1226 8:2633 16:5115" --gpus-per-node 8'


@dataclass(frozen=True, order=True)
class Size:
    """So many nodes with so many devices each."""

    nodes: int
    per_node: int

    @property
    def devices(self) -> int:
        return self.nodes * self.per_node

    def __str__(self) -> str:
        return f"{self.nodes} × {self.per_node}"


@dataclass(frozen=True)
class Point:
    """``rate``: samples per second over all devices, the median of ``repeats``.

    ``spread`` is the relative standard deviation of one repeat.
    """

    size: Size
    rate: float
    spread: float = USUAL_SPREAD
    repeats: int = 1

    @property
    def error(self) -> float:
        """The relative standard error of ``rate``."""
        return self.spread / math.sqrt(self.repeats)


def size_of(text: str, gpus_per_node: int | None) -> Size:
    """``32`` on nodes of ``gpus_per_node``, or ``4x8``. Raises RankupError."""
    match = _SIZE.fullmatch(text.strip())
    if not match or int(match["count"]) == 0 or match["nodes"] == "0":
        raise RankupError(
            "bad-size",
            f"{text.strip()!r} is not a size",
            hint="a number of devices (32), or nodes x devices (4x8)",
        )
    count = int(match["count"])
    if match["nodes"]:
        return Size(int(match["nodes"]), count)
    if gpus_per_node is None:
        raise RankupError(
            "unknown-nodes",
            f"{count} device{'s' * (count != 1)}: how many of them are on one node?",
            hint=f"--gpus-per-node N, or write sizes as nodes x devices, e.g. 1x{count}",
        )
    if count <= gpus_per_node:
        return Size(1, count)
    if count % gpus_per_node:
        raise RankupError(
            "partial-node",
            f"{count} devices do not fill nodes of {gpus_per_node}",
            hint=f"use whole nodes: {count // gpus_per_node * gpus_per_node} or "
            f"{(count // gpus_per_node + 1) * gpus_per_node}",
        )
    return Size(count // gpus_per_node, gpus_per_node)


def parse_points(text: str, gpus_per_node: int | None) -> list[Point]:
    """``"1:348.62 4:1226 16:5115"``: devices, and samples per second over all of them. Raises RankupError."""
    pairs = []
    for word in re.split(r"[\s,;]+", text.strip()):
        size, colon, rate = word.partition(":")
        if not colon:
            raise RankupError(
                "bad-point", f"{word!r} is not a point", context=f"--points {text!r}", hint=f"use {_EXAMPLE}"
            )
        pairs.append(Point(size_of(size, gpus_per_node), _rate(rate, word)))
    return checked(pairs)


def read_csv(path: Path, gpus_per_node: int | None) -> list[Point]:
    """A table with the columns ``devices`` (or ``gpus``; or ``nodes`` and ``per_node``) and ``rate``.

    Rows of the same size are repeats. Raises RankupError.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # spreadsheets begin with a mark
            rows = list(csv.DictReader(file, skipinitialspace=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RankupError("bad-table", f"cannot read {path.name}: {error}", context=str(path)) from error
    rates: dict[Size, list[float]] = {}
    for number, row in enumerate(rows, 2):
        cells = {
            (key or "").strip().lower(): (value or "") for key, value in row.items() if isinstance(value, str)
        }
        if not {"devices", "gpus", "per_node"} & set(cells) or "rate" not in cells:
            raise RankupError(
                "bad-table",
                f"the columns of {path.name} are {', '.join(filter(None, cells)) or 'missing'}",
                context=f"{path}:1",
                hint="the first line names the columns: devices,rate or nodes,per_node,rate",
            )
        size = cells.get("devices") or cells.get("gpus") or f"{cells.get('nodes') or 1}x{cells['per_node']}"
        rates.setdefault(size_of(size, gpus_per_node), []).append(
            _rate(cells["rate"], f"{path.name}:{number}")
        )
    return checked(_point(size, several) for size, several in rates.items())


def from_results(results: StudyResults, strategy: str | None = None) -> list[Point]:
    """The points of one ``strategy`` of a study (None: the one it has). One process alone belongs to each of them.

    Raises RankupError where several strategies, precisions or batches per device are mixed.
    """
    ran = [one for one in results.configurations if one.runs]
    found = sorted({one.runs[0].strategy for one in ran if one.runs[0].processes > 1})
    if len(found) > 1 and strategy is None:
        raise RankupError(
            "several-strategies",
            f"the study has several strategies: {', '.join(found)}",
            hint=f"choose one: --strategy {found[0]}",
        )
    chosen = strategy or (found[0] if found else "")
    if found and chosen not in found:
        raise RankupError(
            "unknown-strategy", f"no run of the study used {chosen!r}", hint=f"it has: {', '.join(found)}"
        )
    series = [one for one in ran if one.runs[0].strategy == chosen]
    if not any(one.runs[0].processes == 1 for one in series):
        series += [one for one in ran if one.runs[0].processes == 1]
    for fact in ("precision", "device_type", "threads"):
        _one_value(series, fact)
    if results.scaling == "weak":
        # A run without steps tells no samples either: `_of_runs` refuses it.
        _one_value(
            series, "batch per device", lambda run: run.samples / max(run.steps, 1) / run.processes, digits=2
        )
    return checked(_of_runs(one.runs) for one in series)


def checked(points: Iterable[Point]) -> list[Point]:
    """In the order of their sizes; each once. Raises RankupError."""
    points = sorted(points, key=lambda point: point.size)
    sizes = [point.size for point in points]
    for first, second in pairwise(sizes):
        if first == second:
            raise RankupError(
                "duplicate-point",
                f"{first} is given twice",
                hint="give the median of repeats; a CSV file may hold one row for each repeat",
            )
    if not points:
        raise RankupError("no-points", "there is no measurement to predict from", hint=f"use {_EXAMPLE}")
    return points


def _of_runs(runs: Sequence[Measured]) -> Point:
    first = runs[0]
    if first.processes % first.nodes:
        raise RankupError(
            "uneven-nodes", f"{first.processes} processes on {first.nodes} nodes are not equally many on each"
        )
    if any(not (math.isfinite(run.seconds) and run.seconds > 0 and run.samples > 0) for run in runs):
        raise RankupError("bad-point", "a run of the study has no time or no samples", context=first.path)
    return _point(Size(first.nodes, first.processes // first.nodes), [run.rate for run in runs])


def _point(size: Size, rates: Sequence[float]) -> Point:
    """A spread of few repeats may be small by chance: it counts as the usual one at least."""
    middle = statistics.median(rates)
    spread = statistics.stdev(rates) / middle if len(rates) > 1 else 0.0
    return Point(size, middle, max(spread, USUAL_SPREAD), len(rates))


def _rate(text: str, where: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not (math.isfinite(rate) and rate > 0):
        raise RankupError(
            "bad-rate",
            f"{text.strip()!r} is not a rate",
            context=where,
            hint="samples per second over all devices, a number above zero",
        )
    return rate


def _one_value(series: Sequence[Configuration], fact: str, value: Any = None, digits: int = 9) -> None:
    def of(run: Measured) -> Any:
        if value is not None:
            return round(value(run), digits)
        return run.facts.get(fact, getattr(run, fact, None))

    values = {str(of(run)): None for one in series for run in one.runs}
    if len(values) > 1:
        raise RankupError(
            "mixed-points",
            f"the runs differ in {fact}: {', '.join(values)}",
            hint="predict from runs that differ in their number of devices alone",
        )
