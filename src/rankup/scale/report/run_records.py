"""What the records of one run say: curves, utilisation, facts.

A field may be absent and a line may be cut by a kill: what is left is shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rankup.core.records import read_records
from rankup.errors import RankupError
from rankup.scale.report.text import number
from rankup.scale.report.thin import Numbers, thinned

MOST_POINTS = 600  # of one curve, in memory: more than a figure has pixels
_NONE = np.zeros(0)
# Of `rankup train`, whose records have their metrics beside the other fields, under these names.
_TOP_LEVEL = {
    "loss": "loss",
    "accuracy": "accuracy",
    "train_loss": "loss",
    "train_accuracy": "accuracy",
    "test_loss": "test_loss",
    "test_accuracy": "test_accuracy",
}


@dataclass(frozen=True)
class Curve:
    """One metric of one run, finite values only: ``measured`` points before thinning, ``lost`` were not finite."""

    epochs: Numbers
    seconds: Numbers
    values: Numbers
    measured: int
    lost: int = 0

    @classmethod
    def of(cls, epochs: Numbers, seconds: Numbers, values: Numbers) -> Curve:
        finite = np.isfinite(values)
        epochs, seconds, values = epochs[finite], seconds[finite], values[finite]
        kept = thinned(values, MOST_POINTS)
        return cls(epochs[kept], seconds[kept], values[kept], len(values), int((~finite).sum()))


@dataclass(frozen=True)
class HostSamples:
    """What the sampler of one node saw: one value per sample; NaN where a sample lacks it.

    ``seconds`` since the node's first sample; ``cpu`` and ``gpu`` in percent (``gpu``: the mean over the node's GPUs),
    memory in bytes (``gpu_memory``: of the fullest GPU), ``power`` in watts over all GPUs, ``network`` in bytes since
    the sample before.
    """

    host: str
    seconds: Numbers
    cpu: Numbers
    gpu: Numbers
    memory: Numbers
    gpu_memory: Numbers
    power: Numbers
    network: Numbers


@dataclass(frozen=True)
class RunRecords:
    """One run. ``steps`` and ``epochs``: metric → curve. ``waited``: share of the training time spent on data."""

    name: str
    path: str
    summary: Mapping[str, Any] = field(default_factory=dict)
    outcome: str = ""
    steps: Mapping[str, Curve] = field(default_factory=dict)
    epochs: Mapping[str, Curve] = field(default_factory=dict)
    hosts: Sequence[HostSamples] = ()
    seconds: float = np.nan
    samples: float = np.nan
    waited: float = np.nan
    records: int = 0

    @property
    def rate(self) -> float:
        """Samples per second of training."""
        return self.samples / self.seconds if self.seconds > 0 else np.nan

    def last(self, *metrics: str) -> float:
        """The last value of the first of ``metrics`` that the run tells; NaN if it tells none."""
        for curves in (self.epochs, self.steps):
            for metric in metrics:
                if metric in curves and len(curves[metric].values):
                    return float(curves[metric].values[-1])
        return np.nan


def read_run(path: Path, name: str) -> RunRecords:
    """Read the run directory ``path``. Raises RankupError if there are no records, or they may not be read."""
    folder = path / "records"
    try:
        steps = read_records(folder / "steps.jsonl")
        epochs = read_records(folder / "epochs.jsonl")
        samples = {one: read_records(one, "sample") for one in sorted(folder.glob("utilization-*.jsonl"))}
        outcome = (path / "outcome").read_text().strip() if (path / "outcome").exists() else ""
    except OSError as error:
        raise RankupError(
            "unreadable-records",
            f"cannot read the records of {path.name!r}: {error.strerror}",
            context=str(error.filename),
            hint="only the owner of a run may read it; `ls -ld` shows the owner",
        ) from error
    count = len(steps) + len(epochs) + sum(map(len, samples.values()))
    if count == 0:
        raise RankupError(
            "no-records",
            f"the run {path.name!r} has no records",
            context=str(folder),
            hint="`rankup train` and scripts that use run.steps or run.epochs write them as they train",
        )
    per_step = _in_order(steps, "step", ("epoch", "step"))
    per_epoch = _in_order(epochs, "epoch", ("epoch",))
    summaries = [record for record in epochs if record.get("kind") == "summary"]
    summary = summaries[-1] if summaries else {}
    seconds, seen, waited = _totals(per_step, per_epoch, summary)
    return RunRecords(
        name=name,
        path=str(path),
        summary=summary,
        outcome=outcome,
        steps=_step_curves(per_step),
        epochs=_epoch_curves(per_epoch),
        hosts=[host for file, found in samples.items() if (host := _host(found, file.stem))],
        seconds=seconds,
        samples=seen,
        waited=waited / seconds if seconds > 0 else np.nan,
        records=count,
    )


def metrics_of(record: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of a step or an epoch: from ``metrics``, or from the fields of `rankup train`."""
    given = record.get("metrics")
    if isinstance(given, dict):
        return {str(name): number(value) for name, value in given.items()}
    return {name: number(record[key]) for key, name in _TOP_LEVEL.items() if key in record}


def _in_order(records: Iterable[dict[str, Any]], kind: str, keys: tuple[str, ...]) -> list[dict[str, Any]]:
    """The records of ``kind`` whose position only grows: what a later attempt did again replaces the first try."""
    kept: list[dict[str, Any]] = []
    next_position: tuple[float, ...] = (np.inf,)
    for record in reversed([record for record in records if record.get("kind") == kind]):
        position = tuple(number(record.get(key)) for key in keys)
        if position < next_position:
            kept.append(record)
            next_position = position
    return kept[::-1]


def _column(records: Sequence[Mapping[str, Any]], key: str) -> Numbers:
    return np.array([number(record.get(key)) for record in records])


def _curves(records: Sequence[Mapping[str, Any]], epochs: Numbers, seconds: Numbers) -> dict[str, Curve]:
    metrics = [metrics_of(record) for record in records]
    names = dict.fromkeys(name for each in metrics for name in each)
    return {
        name: Curve.of(epochs, seconds, np.array([each.get(name, np.nan) for each in metrics]))
        for name in names
    }


def _step_curves(records: Sequence[Mapping[str, Any]]) -> dict[str, Curve]:
    seconds = _column(records, "seconds")
    if records and not np.isfinite(seconds).any():  # `rankup train` tells the time of day alone
        times = _column(records, "time")
        seconds = times - times[0]
    epochs = _column(records, "epoch") - 1 + _column(records, "step") / _column(records, "steps")
    return _curves(records, epochs, seconds)


def _epoch_curves(records: Sequence[Mapping[str, Any]]) -> dict[str, Curve]:
    return _curves(records, _column(records, "epoch"), np.cumsum(_epoch_seconds(records)))


def _epoch_seconds(records: Sequence[Mapping[str, Any]]) -> Numbers:
    return np.array([number(one.get("seconds", one.get("train_seconds"))) for one in records])


def _totals(
    steps: Sequence[Mapping[str, Any]], epochs: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]
) -> tuple[float, float, float]:
    """Seconds of training, samples, seconds that the loop waited for data: of the whole run as far as it came."""
    seconds = number(summary.get("train_seconds"))
    if np.isnan(seconds):
        seconds = float(np.nansum(_epoch_seconds(epochs)))
        if steps and not np.isnan(latest := number(steps[-1].get("seconds"))):
            seconds = max(seconds, latest)
    samples = number(summary.get("samples"))
    if np.isnan(samples):
        each = [number(one.get("samples", one.get("train_samples"))) for one in epochs]
        samples = float(np.nansum(each))
        ended = number(epochs[-1].get("epoch")) if epochs else 0.0
        if steps and number(steps[-1].get("epoch")) > ended:  # the epoch that it is in, or was killed in
            samples += float(np.nan_to_num(number(steps[-1].get("samples"))))
    waits = [one for one in (_column(epochs, "data_s"), _column(steps, "data_s")) if np.isfinite(one).any()]
    return seconds, samples, max((float(np.nansum(one)) for one in waits), default=np.nan)


def _host(records: Sequence[Mapping[str, Any]], fallback: str) -> HostSamples | None:
    if not records:
        return None
    times = _column(records, "time")
    gpus = [[gpu for gpu in one.get("gpus") or () if isinstance(gpu, dict)] for one in records]

    def over_gpus(key: str, of: Any) -> Numbers:
        values = [[number(gpu.get(key)) for gpu in each] for each in gpus]
        return np.array([of(each) if each else np.nan for each in values], dtype=float)

    whole = np.stack(
        [
            times - np.nanmin(times) if np.isfinite(times).any() else np.arange(float(len(times))),
            _column(records, "cpu_percent"),
            over_gpus("utilization", np.mean),
            _column(records, "memory_bytes"),
            over_gpus("memory_bytes", max),
            over_gpus("power_w", sum),
            _column(records, "network_sent") + _column(records, "network_received"),
        ]
    )
    host = records[0].get("host") or fallback.removeprefix("utilization-")
    return HostSamples(str(host), *whole)


def run_name(path: Path) -> str:
    """``name/id`` of ``runs/<name>/<id>``."""
    return f"{path.absolute().parent.name}/{path.name}"


def outcome_error(path: Path) -> str:
    """Why the run failed, from ``outcome.json``; "" if it does not tell."""
    try:
        details = json.loads((path / "outcome.json").read_text())
        return str(details.get("error") or details.get("reason") or "")
    except (OSError, ValueError, AttributeError):
        return ""
