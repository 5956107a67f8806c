"""The table, as aligned plain text: what was measured, what follows from it, and what each number means."""

from __future__ import annotations

from collections.abc import Sequence

from rankup.core.columns import aligned
from rankup.scale.grid import count_of
from rankup.scale.measured import Measured
from rankup.scale.rows import Row, version_of
from rankup.scale.stats import chance_apart

_NOTHING = "–"
_LEFT = {"version"}  # everything else is a number, and ends where its column ends


def ratio_table(rows: Sequence[Row]) -> str:
    """One line per version, then what the columns mean. Only for runs that may be compared."""
    digits = _digits([row.seconds.median for row in rows])
    cells = [
        {
            "version": row.version,
            "processes": f"{row.processes}",
            "threads each": f"{row.threads}",
            "runtime": f"{row.seconds.median:.{digits}f} s",
            "min–max": f"{row.seconds.low:.{digits}f}–{row.seconds.high:.{digits}f}"
            if row.seconds.tells_spread
            else _NOTHING,
            "speed-up": f"{row.speedup:.2f}",
            "range": "{:.2f}–{:.2f}".format(*row.speedup_range) if row.speedup_range else _NOTHING,
            "efficiency": f"{row.efficiency:.0%}",
            "test accuracy": f"{row.accuracy:.2%}",
        }
        for row in rows
    ]
    return "\n".join([*_aligned(cells), "", *(f"  {note}" for note in notes(rows))])


def run_table(runs: Sequence[Measured]) -> str:
    """One line per run and no ratio: what is left where runs may not be compared."""
    digits = _digits([run.seconds for run in runs])
    cells = [
        {
            "version": version_of(run),
            "processes": f"{run.processes}",
            "threads each": f"{run.threads}",
            "repeat": f"{run.turn.repeat}",
            "runtime": f"{run.seconds:.{digits}f} s",
            "samples": f"{run.summary['samples']:,}",
            "test accuracy": f"{run.accuracy:.2%}",
        }
        for run in sorted(runs, key=lambda run: (run.turn.processes, run.turn.repeat))
    ]
    return "\n".join(_aligned(cells))


def heading(run: Measured) -> str:
    """The work that every run did, in two lines."""
    said = run.summary
    settings = "".join(f", {key}={value}" for key, value in said["settings"].items())
    return (
        f"{said['name']} on {said['data']}: {said['samples']:,} samples in {run.steps:,} steps of a global batch "
        f"of {said['global_batch']}, epochs: {said['epochs']}\n"
        f"{said['optimizer']}, lr {said['lr']:g}, gamma {said['gamma']:g}, seed {said['seed']}{settings}; "
        f"{said['precision']} on {said['device']}, torch {said['torch']}"
    )


def notes(rows: Sequence[Row]) -> list[str]:
    """What the numbers mean, and how far they carry."""
    baseline, *others = rows
    lines = [
        "runtime: training alone, without start-up and evaluation; "
        + ("median of the repeats" if baseline.seconds.tells_spread else "one run each"),
        f"speed-up: runtime of {count_of(baseline.processes)} / runtime of the row",
        _efficiency_note(rows),
    ]
    lines += [
        f"{count_of(row.processes)}: within the noise, the runtimes overlap those of {count_of(baseline.processes)}"
        for row in others
        if row.within_noise
    ]
    return [*lines, _spread_note(rows)]


def _efficiency_note(rows: Sequence[Row]) -> str:
    times = "efficiency: speed-up / how many times the "
    if not rows[0].on_cpu:
        return times + "GPUs"
    if len({row.threads for row in rows}) == 1:
        return times + "processes; each has as many threads"
    if len({row.cores for row in rows}) == 1:
        return times + "cores (processes × threads), which are as many in all rows"
    return times + "cores (processes × threads)"


def _spread_note(rows: Sequence[Row]) -> str:
    count = min(row.seconds.count for row in rows)
    if count == 1:
        return "one run tells no spread: --repeats 3 or more shows what is noise"
    chance = chance_apart(count, count)
    percent = f"{chance:.0%}" if chance >= 0.01 else f"{chance:.1%}"
    return f"{count} repeats each: versions of equal speed show separate ranges in {percent} of such studies"


def _aligned(cells: Sequence[dict[str, str]]) -> list[str]:
    names = list(cells[0])
    numbers = [number for number, name in enumerate(names) if name not in _LEFT]
    return aligned([names, *([row[name] for name in names] for row in cells)], right=numbers)


def _digits(seconds: Sequence[float]) -> int:
    """Decimals that leave the shortest runtime three figures or so."""
    shortest = min(seconds)
    return 3 if shortest < 1 else 2 if shortest < 10 else 1
