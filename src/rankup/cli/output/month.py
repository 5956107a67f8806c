"""``rankup report --month``: the device-hours of a group, by owner and name of the runs."""

from __future__ import annotations

import pwd
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from rankup.cli.output import console
from rankup.cli.output.table import print_table
from rankup.core.goodput import KINDS, Goodput, goodput_of, hours, runs_below
from rankup.core.units import duration
from rankup.errors import RankupError


def hours_of_month(roots: Sequence[Path], month: str, *, as_json: bool) -> None:
    """Attempts count in the month in which they began. Runs whose records tell nothing are counted, and left out."""
    since, until = _bounds(month)
    rows: dict[tuple[str, str], Goodput] = {}
    runs: dict[tuple[str, str], int] = defaultdict(int)
    silent = 0
    for path in (path for root in roots for path in runs_below(_existing(root))):
        told = goodput_of(path, since=since, until=until)
        if told is None:
            silent += goodput_of(path) is None
            continue
        key = _owner(path), path.parent.name
        rows[key] = rows[key] + told if key in rows else told
        runs[key] += 1
    if as_json:
        named = [
            {"owner": key[0], "name": key[1], "runs": runs[key], **rows[key].as_dict()}
            for key in sorted(rows)
        ]
        console.print_json({"month": month, "rows": named, "silent": silent})
        return
    if not rows:
        print(f"no run below {', '.join(map(str, roots))} began an attempt in {month} and told what it did")
        return
    lines = [_row(*key, runs[key], rows[key]) for key in sorted(rows)]
    total, *others = rows.values()
    for one in others:
        total += one
    lines.append(_row("all", "", sum(runs.values()), total))
    print_table(
        ("owner", "name", "runs", "attempts", "held", *KINDS, "goodput", "queue"), lines, fold=("name",)
    )
    print("\ndevice-hours; queue: hours that the runs waited, as far as a scheduler knows")
    if silent:
        print(f"{silent} runs tell nothing of what they did, and are not in it")


def _row(owner: str, name: str, runs: int, told: Goodput) -> tuple[str, ...]:
    spent = [hours(getattr(told, kind)) for kind in ("held", *KINDS)]
    queue = "–" if told.queue is None else duration(told.queue)
    return owner, name, str(runs), str(told.attempts), *spent, f"{told.share:.1%}", queue


def _bounds(month: str) -> tuple[float, float]:
    """When ``month`` begins and ends, in epoch seconds of this machine's time zone."""
    try:
        begin = time.strptime(month, "%Y-%m")
    except ValueError:
        raise RankupError("bad-month", f"{month!r} is not a month", hint="--month 2026-03") from None
    year, number = begin.tm_year, begin.tm_mon
    # mktime takes a thirteenth month for the first of the next year.
    first, last = (time.mktime((year, one, 1, 0, 0, 0, 0, 0, -1)) for one in (number, number + 1))
    return first, last


def _existing(root: Path) -> Path:
    if not root.is_dir():
        raise RankupError(
            "no-directory", f"no directory {str(root)!r}", hint="--month adds up the runs below directories"
        )
    return root


def _owner(path: Path) -> str:
    uid = path.stat().st_uid
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
