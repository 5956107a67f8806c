"""σ of the whole model: how much the step of one device varies, from the repeats of a study."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from rankup.scale.results import StudyResults

ENOUGH = 3  # repeats


@dataclass(frozen=True)
class Deviation:
    """``sigma`` in seconds of a step; ``basis`` says what it comes from, or why it is 0."""

    sigma: float
    basis: str


def step_deviation(study: StudyResults | None, strategy: str = "") -> Deviation:
    """The standard deviation of a step over the repeats of the configuration with the fewest devices.

    The repeats are means over a run: devices that are slow for a whole run are seen, jitter between steps is not.
    ``strategy``: of the configurations on several processes. None: rates without a study.
    """
    runs = [
        one.runs
        for one in (study.configurations if study is not None else ())
        if one.runs and (one.runs[0].processes == 1 or strategy in ("", one.runs[0].strategy))
    ]
    enough = [each for each in runs if len(each) >= ENOUGH and all(run.steps for run in each)]
    if not enough:
        most = max(map(len, runs), default=1)
        return Deviation(0.0, f"0: it needs {ENOUGH} repeats of one configuration, and there {_are(most)}")
    chosen = min(enough, key=lambda each: (each[0].devices, -len(each)))
    sigma = statistics.stdev(run.seconds / run.steps for run in chosen)
    first = chosen[0]
    size = f"{first.nodes} × {first.processes // first.nodes}"
    return Deviation(sigma, f"{1000 * sigma:.3g} ms, from {len(chosen)} repeats of {size}")


def _are(count: int) -> str:
    return "is one" if count == 1 else f"are {count}"
