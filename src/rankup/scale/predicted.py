"""Each larger configuration of a study is predicted before it is measured, and the prediction is scored afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from rankup.core.units import duration, rate
from rankup.errors import RankupError
from rankup.scale.journal import Journal
from rankup.scale.plan import Trial
from rankup.scale.predict.points import Size, from_results
from rankup.scale.predict.prediction import Prediction, predict_next, score
from rankup.scale.results import Configuration, Measured, StudyResults

_SIZE_KEYS = ("nodes", "nproc", "gpus")


class Predictions:
    """The predictor of a study. ``collect`` returns what has been measured so far; ``say`` prints a line."""

    def __init__(
        self, journal: Journal, collect: Callable[[Journal], StudyResults], say: Callable[[str], None]
    ) -> None:
        self._journal, self._collect, self._say = journal, collect, say
        self._made: dict[Trial, Prediction] = {}

    def before(self, trial: Trial) -> None:
        """Predict the first measured run of a configuration, if smaller ones have been measured.

        Nobody has asked for it, so a refusal is not said: `rankup predict` says why, to whom asks.
        """
        if trial.repeat != 1 or trial in self._made:
            return
        series = self._series(trial)
        if not any(one.runs for one in series.configurations):
            return
        try:
            made = predict_next(from_results(series), _size(trial), series.scaling)
        except RankupError:
            return
        samples = _samples(series)
        self._made[trial] = made
        self._say(f"  {trial.name}: predicted: {_range(made, samples)}; linear: {_one(made.linear, samples)}")
        self._journal.note("predicted", point=trial.asked, samples=samples, **made.as_dict())

    def after(self, trial: Trial, measured: Measured | None) -> None:
        """Score the prediction, if there is one."""
        made = self._made.pop(trial, None)
        if made is None or measured is None:
            return
        found = score(made, _counted(measured, self._journal.plan.scaling).rate)
        within = "within" if found.within else "outside of"
        self._say(
            f"  {found.error:+.0%} from the prediction, {within} its interval; {found.linear_error:+.0%} from linear"
        )
        self._journal.note("scored", point=trial.asked, **found.as_dict())

    def _series(self, trial: Trial) -> StudyResults:
        """Smaller configurations than that of ``trial`` that differ from it in their size alone."""
        results, size, others = self._collect(self._journal), _size(trial), _others(trial.asked)
        smaller = [
            replace(one, runs=[_counted(run, results.scaling) for run in one.runs])
            for one in results.configurations
            if _others(one.asked) == others and _devices(one) < size.devices
        ]
        return replace(results, configurations=smaller)


def _size(trial: Trial) -> Size:
    nodes = int(trial.asked.get("nodes", 1))
    return Size(nodes, trial.processes // nodes)


def _devices(one: Configuration) -> int:
    return Trial(tuple(one.asked.items()), 1).processes


def _others(asked: Mapping[str, str | int]) -> dict[str, str | int]:
    return {key: value for key, value in asked.items() if key not in _SIZE_KEYS}


def _counted(run: Measured, scaling: str) -> Measured:
    """A run that counted no samples did the same work as all others, if the scaling is strong."""
    return replace(run, samples=1) if not run.samples and scaling == "strong" else run


def _samples(series: StudyResults) -> int:
    """Of every run; 0 if they differ, as in weak scaling."""
    found = {run.samples for one in series.configurations for run in one.runs}
    return found.pop() if len(found) == 1 and series.scaling == "strong" else 0


def _range(made: Prediction, samples: int) -> str:
    low, high = (made.high, made.low) if samples else (made.low, made.high)
    return f"{_one(made.rate, samples)} ({_one(low, samples)}–{_one(high, samples)})"


def _one(value: float, samples: int) -> str:
    return duration(samples / value) if samples else f"{rate(value)} samples/s"
