"""What each rank of a run tells, on one grid of times: ``records/rank-R.jsonl``.

The records hold sums since a loop began, so any of them may be left out: of long files some hundred are read, spread
over the file, and the value of a stretch is what the sums have grown in it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from rankup.core import forked
from rankup.monitor.series import RankPoint, rank_point, text, whole
from rankup.scale.report.text import plain
from rankup.scale.report.thin import Numbers

STRETCHES = 120
# Records that are read of one rank: all of a run share so many, and each has enough for its stretches.
MOST_RECORDS, _ENOUGH, _TOGETHER = 600, 150, 40_000
_LEAST_STEPS = 4  # of a stretch, if the run has as many
_LINE = 1024  # bytes: more than a record has
_NAME = re.compile(r"rank-(\d+)\.jsonl")
_SUMS = ("steps", "seconds", "data_s", "before_steps", "before_s")


@dataclass(frozen=True)
class RankLines:
    """One row per rank, one column per stretch; NaN where a rank finished no step in a stretch.

    ``seconds``: the middle of each stretch, since the first record. ``step_s`` is a step's time, ``data_s`` what of it
    the rank waited for data, ``own_s`` what it computed before it waited for others (without data): all NaN if the
    strategy does not tell it.
    """

    labels: Sequence[str]
    seconds: Numbers
    step_s: Numbers
    data_s: Numbers
    own_s: Numbers


@dataclass(frozen=True)
class _Rank:
    rank: int
    host: str
    times: Numbers
    sums: dict[str, Numbers]


def read_ranks(folder: Path) -> RankLines | None:
    """Of the run directory ``folder``; None if no rank tells two records."""
    paths = sorted(
        path for path in (folder / "records").glob("rank-*.jsonl") if _NAME.fullmatch(path.name) is not None
    )
    most = max(_ENOUGH, min(MOST_RECORDS, _TOGETHER // max(1, len(paths))))
    found = [one for one in forked.each(partial(_read, most=most), paths) if one is not None]
    return _on_one_grid(sorted(found, key=lambda one: one.rank)) if found else None


def _read(path: Path, most: int) -> _Rank | None:
    records = [(record, point) for record in _some(path, most) if (point := rank_point(record)) is not None]
    records = [(record, point) for record, point in records if record.get("kind") == "rank"]
    match = _NAME.fullmatch(path.name)
    if match is None or len(records) < 2:
        return None
    order = np.argsort([point.time for _, point in records], kind="stable")
    ordered = [records[index] for index in order]
    sums = _growing([(whole(record.get("pid")), point) for record, point in ordered])
    host = text(ordered[-1][0].get("host"))
    return _Rank(int(match[1]), host, np.array([point.time for _, point in ordered]), sums)


def _some(path: Path, most: int) -> list[dict[str, Any]]:
    """All records of a short file; of a long one those at ``most`` places, the first and the last among them."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size <= most * _LINE // 2:
                return list(_parsed(file.read().split(b"\n")))
            lines: list[bytes] = []
            pieces: list[bytes] = []
            for place in np.linspace(0, size - 2 * _LINE, most).astype(int):
                file.seek(int(place))
                pieces = file.read(2 * _LINE).split(b"\n")
                lines += pieces[:1] if place == 0 else pieces[1:2]
            return list(_parsed([*lines, *pieces[2:]]))
    except OSError:
        return []


def _parsed(lines: Sequence[bytes]) -> Iterator[dict[str, Any]]:
    """A line that is cut is not JSON, and is passed over."""
    for line in lines:
        try:
            record = orjson.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record


def _growing(points: Sequence[tuple[int | None, RankPoint]]) -> dict[str, Numbers]:
    """The sums over all loops and attempts: another process, or another loop of it, begins at 0 again."""
    table = np.array([[getattr(point, name) for name in _SUMS] for _, point in points], dtype=float)
    anew = [False] + [
        pid != before or point.steps < last.steps or last.phase == "ended"
        for (before, last), (pid, point) in pairwise(points)
    ]
    carried = np.zeros_like(table)
    carried[1:][anew[1:]] = table[:-1][anew[1:]]
    total = table + np.cumsum(carried, axis=0)
    return {name: total[:, index] for index, name in enumerate(_SUMS)}


def _on_one_grid(ranks: Sequence[_Rank]) -> RankLines | None:
    begin = min(float(one.times[0]) for one in ranks)
    end = max(float(one.times[-1]) for one in ranks)
    steps = max(float(one.sums["steps"][-1] - one.sums["steps"][0]) for one in ranks)
    records = max(len(one.times) for one in ranks)
    count = int(max(1, min(STRETCHES, records - 1, steps // _LEAST_STEPS)))
    if end <= begin or steps < 1:
        return None
    edges = np.linspace(begin, end, count + 1)
    grown = {name: np.array([_grown(one, name, edges) for one in ranks]) for name in _SUMS}
    with np.errstate(divide="ignore", invalid="ignore"):
        counted = np.where(grown["steps"] > 0.5, grown["steps"], np.nan)
        measured = np.where(grown["before_steps"] > 0.5, grown["before_steps"], np.nan)
        data = grown["data_s"] / counted
        own = np.maximum(0.0, grown["before_s"] / measured - data)
    hosts = {one.host for one in ranks}
    return RankLines(
        [plain(f"rank {one.rank}" + (f" on {one.host}" if len(hosts) > 1 else "")) for one in ranks],
        (edges[1:] + edges[:-1]) / 2 - begin,
        grown["seconds"] / counted,
        data,
        own,
    )


def _grown(one: _Rank, name: str, edges: Numbers) -> Numbers:
    grown: Numbers = np.diff(np.interp(edges, one.times, one.sums[name]))
    return grown
