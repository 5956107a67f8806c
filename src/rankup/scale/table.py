"""The tables, as aligned plain text: what was measured, what follows from it, and what each number means."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rankup.core.columns import aligned
from rankup.core.units import rate
from rankup.scale.families import TITLES
from rankup.scale.results import StudyResults
from rankup.scale.rows import Ratio, Row
from rankup.scale.stats import ENOUGH_FOR_BOOTSTRAP, Interval, chance_apart

_NOTHING = "–"
_LEFT = {"configuration"}  # everything else is a number, and ends where its column ends


def heading(study: StudyResults) -> str:
    """The work that every run did, as far as all of them tell the same."""
    runs = [run for one in study.configurations for run in one.runs]
    said = {
        key: value for key, value in runs[0].facts.items() if all(r.facts.get(key) == value for r in runs)
    }
    samples = {run.facts.get("all_samples", run.samples) for run in runs}
    work = [f"{said.get('name', study.target)}" + (f" on {said['data']}" if "data" in said else "")]
    if len(samples) == 1 and (trained := samples.pop()):
        work.append(f"{trained:,} samples in {runs[0].steps:,} steps")
        # Updates that are accumulated by hand, or batches that the body leaves out.
        if said.get("optimizer_steps", runs[0].steps) != runs[0].steps:
            work.append(f"{said['optimizer_steps']:,} optimizer steps")
    work += [
        f"{words} {said[key]}"
        for key, words in (("global_batch", "global batch"), ("epochs", "epochs"))
        if key in said
    ]
    how = [str(said[key]) for key in ("optimizer", "precision", "device") if key in said]
    how += [
        f"{words} {said[key]}"
        for key, words in (("lr", "lr"), ("gamma", "gamma"), ("seed", "seed"))
        if key in said
    ]
    how += [f"{key}={value}" for key, value in (said.get("settings") or {}).items()]
    how += [f"torch {said['torch']}"] if "torch" in said else []
    lines = [f"{study.scaling} scaling: " + ", ".join(work), ", ".join(how)]
    return "\n".join(line for line in lines if line)


def time_table(rows: Sequence[Row]) -> str:
    """One line per configuration, without any ratio."""
    digits = _digits([row.seconds.median for row in rows])
    cells = [
        {
            "configuration": row.name,
            _devices_word(rows): f"{row.devices}",
            "threads each": f"{row.threads}",
            "runs": f"{row.seconds.count}",
            "runtime": f"{row.seconds.median:.{digits}f} s",
            "min–max": _between(
                (row.seconds.low, row.seconds.high) if row.seconds.tells_spread else None, digits
            ),
            "95 % interval": _between(row.interval, digits),
            "samples/s": _NOTHING if row.rate is None else rate(row.rate),
            "test accuracy": _NOTHING if row.accuracy is None else f"{row.accuracy:.2%}",
        }
        for row in rows
    ]
    return "\n".join(_aligned(cells))


def ratio_table(ratios: Sequence[Ratio]) -> str:
    """What follows against one baseline: ``ratios`` are all of the same family."""
    cells = [
        {
            "configuration": one.name + (" (unfair)" if one.unfair else ""),
            "speed-up": f"{one.speedup:.2f}",
            "range": _between(one.range, 2),
            "95 % interval": _between(one.interval, 2),
            "efficiency": f"{one.efficiency:.0%}",
            "its interval": _percent(one),
        }
        for one in ratios
    ]
    title = f"against {ratios[0].baseline} ({TITLES[ratios[0].kind]})"
    return "\n".join([title, *(f"  {line}" for line in _aligned(cells))])


def notes(study: StudyResults, rows: Sequence[Row], ratios: Sequence[Ratio]) -> list[str]:
    """What the numbers mean, and how far they carry."""
    count = min(row.seconds.count for row in rows)
    # The records of a script's loop are read without its first steps; the heading tells all of its samples.
    later = any("all_samples" in run.facts for one in study.configurations for run in one.runs)
    lines = [
        (
            "runtime: what the pattern found"
            if study.metric
            else "runtime, samples/s: training alone, without start-up, first steps and evaluation"
            if later
            else "runtime: training alone, without start-up and evaluation"
        )
        + ("; median of the runs" if count > 1 else "; one run each")
    ]
    if ratios:
        lines += [
            "speed-up: samples/s of the row / samples/s of the baseline"
            if study.scaling == "weak"
            else "speed-up: runtime of the baseline / runtime of the row",
            f"efficiency: speed-up / how many times the {_devices_word(rows)}"
            + (" (processes × threads)" if _devices_word(rows) == "cores" else ""),
        ]
        lines += [
            f"{one.name}: within the noise, the runtimes overlap those of {one.baseline}"
            for one in ratios
            if one.within_noise
        ]
        lines.append(_spread_note(count))
    if any(one.unfair for one in ratios):
        lines.append("unfair: this ratio compares different things, see the errors")
    return lines


def _spread_note(count: int) -> str:
    if count < ENOUGH_FOR_BOOTSTRAP:
        chance = chance_apart(count, count)
        percent = f"{chance:.0%}" if chance >= 0.01 else f"{chance:.1%}"
        return (
            f"{count} runs each give no interval ({ENOUGH_FOR_BOOTSTRAP} do): "
            f"configurations of equal speed show separate ranges in {percent} of such studies"
        )
    return "95 % interval: of a median by order statistics (6 runs), of a speed-up by bootstrap (5 runs)"


def _devices_word(rows: Sequence[Row]) -> str:
    kinds = {row.device_type for row in rows}
    return "cores" if kinds == {"cpu"} else "GPUs" if kinds == {"cuda"} else "devices"


def _between(interval: Interval | None, digits: int) -> str:
    return _NOTHING if interval is None else f"{interval[0]:.{digits}f}–{interval[1]:.{digits}f}"


def _percent(one: Ratio) -> str:
    if one.interval is None:
        return _NOTHING
    low, high = (one.efficiency_of(speedup) for speedup in one.interval)
    return f"{low:.0%}–{high:.0%}"


def _aligned(cells: Sequence[dict[str, str]]) -> list[str]:
    """Columns that hold nothing in any row are left out."""
    names = [name for name in cells[0] if any(row[name] != _NOTHING for row in cells)]
    numbers = [number for number, name in enumerate(names) if name not in _LEFT]
    return aligned([names, *([row[name] for name in names] for row in cells)], right=numbers)


def _digits(seconds: Sequence[float]) -> int:
    """Decimals that leave the shortest runtime three figures or so."""
    shortest = min(seconds)
    return 1 if shortest >= 10 else 2 if shortest >= 1 else 2 - math.floor(math.log10(shortest))
