"""What the records of one run say: curves, utilisation, facts.

A field may be absent and a line may be cut by a kill: what is left is shown.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from rankup.core.collector import uncollected
from rankup.core.goodput import Goodput, goodput_of
from rankup.core.records import read_records
from rankup.errors import RankupError
from rankup.monitor.nvidia_smi import SmiLog, host_of
from rankup.scale.report.text import number, plain
from rankup.scale.report.thin import Numbers, thinned

MOST_POINTS = 600  # of one curve, in memory: more than a figure has pixels
Record = dict[str, Any]


@dataclass(frozen=True)
class Curve:
    """One metric of one run, finite values only: ``measured`` points before thinning, ``lost`` were not finite."""

    epochs: Numbers
    seconds: Numbers
    values: Numbers
    measured: int
    lost: int = 0
    ends: bool = True  # whether the last value was finite

    @classmethod
    def of(cls, epochs: Numbers, seconds: Numbers, values: Numbers) -> Curve:
        finite = np.isfinite(values)
        ends = bool(len(finite) and finite[-1])
        epochs, seconds, values = epochs[finite], seconds[finite], values[finite]
        kept = thinned(values, MOST_POINTS)
        return cls(epochs[kept], seconds[kept], values[kept], len(values), int((~finite).sum()), ends)


@dataclass(frozen=True)
class HostSamples:
    """What the sampler of one node saw: one value per sample; NaN where a sample lacks it.

    ``seconds`` since the node's first sample; ``cpu`` and ``gpu`` in percent (``gpu``: the mean over the node's GPUs),
    memory in bytes (``gpu_memory``: of the fullest GPU), ``power`` in watts over all GPUs, ``temperature`` of the
    hottest GPU in °C, ``network`` in bytes since the sample before.
    """

    host: str
    seconds: Numbers
    cpu: Numbers
    gpu: Numbers
    memory: Numbers
    gpu_memory: Numbers
    power: Numbers
    temperature: Numbers
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
    goodput: Goodput | None = None

    @property
    def rate(self) -> float:
        """Samples per second of training."""
        return self.samples / self.seconds if self.seconds > 0 else np.nan

    def last(self, *metrics: str) -> float:
        """The last value of the first of ``metrics`` that the run tells; NaN if it tells none, or ended with NaN."""
        for curves in (self.epochs, self.steps):
            for metric in metrics:
                if metric in curves:
                    return float(curves[metric].values[-1]) if curves[metric].ends else np.nan
        return np.nan


def read_run(path: Path, name: str) -> RunRecords:
    """Read the run directory ``path``. Raises RankupError if there are no records, or they may not be read."""
    with uncollected():
        return _read_run(path, name)


def _read_run(path: Path, name: str) -> RunRecords:
    folder = path / "records"
    try:
        steps = _records(folder / "steps.jsonl")
        epochs = _records(folder / "epochs.jsonl")
        samples = {one.stem: _records(one) for one in sorted(folder.glob("utilization-*.jsonl"))}
        samples |= _of_nvidia_smi(folder, samples)
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
    per_step = _in_order([one for one in steps if one.get("kind") == "step"])
    per_epoch = _in_order([one for one in epochs if one.get("kind") == "epoch"])
    summaries = [one for one in epochs if one.get("kind") == "summary"]
    summary = summaries[-1] if summaries else {}
    seconds, seen, waited = _totals(per_step, per_epoch, summary)
    return RunRecords(
        name=name,
        path=str(path),
        summary=summary,
        outcome=outcome,
        steps=_step_curves(per_step),
        epochs=_epoch_curves(per_epoch),
        hosts=[host for name, found in samples.items() if (host := _host(found, name))],
        seconds=seconds,
        samples=seen,
        waited=waited / seconds if seconds > 0 else np.nan,
        records=count,
        goodput=goodput_of(path, [*steps, *epochs]),
    )


def _of_nvidia_smi(folder: Path, samples: Mapping[str, Sequence[Record]]) -> dict[str, list[Record]]:
    """Of the hosts of which a job's script has a log of nvidia-smi, and no sampler has written."""
    found = {}
    for path in sorted(folder.glob("nvidia-smi-*.csv")):
        name = f"utilization-{host_of(path.name)}"
        if not samples.get(name):
            found[name] = list(SmiLog(host_of(path.name)).add(path.read_bytes().split(b"\n")[:-1]))
    return found


def _records(path: Path) -> list[Record]:
    """All whole records. A whole file is one JSON array, which is parsed in half the time of its lines.

    A file with a line that was cut is not such an array, and is read line by line.
    """
    try:
        text = path.read_bytes().rstrip(b"\n")
    except FileNotFoundError:
        return []
    try:
        found: list[Record] = _parse(b"[" + text.replace(b"\n", b",") + b"]")
    except ValueError:  # also of bytes that are not UTF-8
        return read_records(path)
    whole = len(found) == text.count(b"\n") + 1 and set(map(type, found)) <= {dict}
    return found if whole else read_records(path)


def _parse(text: bytes) -> Any:
    """``orjson`` takes a third of the time, and refuses NaN and infinity, which Python's JSON has."""
    try:
        return orjson.loads(text)
    except ValueError:
        return json.loads(text)


def metrics_of(record: Record) -> dict[str, Any]:
    """The metrics of a step or an epoch; {} if it tells none."""
    given = record.get("metrics")
    return given if type(given) is dict else {}


def _numbers(values: list[Any]) -> Numbers:
    """Values of records as numbers; NaN for what is absent or none."""
    try:
        return np.array(values, dtype=float)  # None becomes NaN
    except (TypeError, ValueError, OverflowError):
        return np.array([number(one) for one in values], dtype=float)


def _column(records: Sequence[Record], key: str) -> Numbers:
    try:
        return _numbers(list(map(itemgetter(key), records)))  # in half the time of the line below
    except KeyError:
        return _numbers([one.get(key) for one in records])


def _in_order(records: Sequence[Record]) -> list[Record]:
    """The records whose step only grows: what a later attempt did again replaces the first try.

    By the run's own count of steps: the epochs of a second loop begin at 1 again.
    """
    step = _column(records, "global_step")
    later = np.minimum.accumulate(np.append(np.nan_to_num(step, nan=np.inf), np.inf)[::-1])[::-1][1:]
    return [one for one, kept in zip(records, step < later, strict=True) if kept]


def _curves(records: Sequence[Record], epochs: Numbers, seconds: Numbers) -> dict[str, Curve]:
    """A curve for each metric, of the records that tell it: one that is told now and then lacks no value."""
    metrics = [metrics_of(one) for one in records]
    curves = {}
    for name in sorted(set().union(*metrics)):
        told = [each for each in metrics if name in each]
        values = _column(told, name)
        if len(told) == len(metrics):
            curves[plain(name)] = Curve.of(epochs, seconds, values)
        else:
            kept = np.array([name in each for each in metrics])
            curves[plain(name)] = Curve.of(epochs[kept], seconds[kept], values)
    return curves


def _epochs_so_far(records: Sequence[Record]) -> Numbers:
    """The epoch of each record, counted over all loops of the run."""
    epoch = _column(records, "epoch")
    if not len(epoch):
        return epoch
    fell = np.append(False, epoch[1:] < epoch[:-1])  # a loop began
    before = np.append(0.0, epoch[:-1])
    offsets: Numbers = np.cumsum(np.where(fell, before, 0.0))
    return epoch + offsets


def _step_curves(records: Sequence[Record]) -> dict[str, Curve]:
    seconds = _column(records, "seconds")
    with np.errstate(divide="ignore", invalid="ignore"):  # an epoch of unknown length has no fractions
        epochs = _epochs_so_far(records) - 1 + _column(records, "step") / _column(records, "steps")
    return _curves(records, epochs, seconds)


def _epoch_curves(records: Sequence[Record]) -> dict[str, Curve]:
    return _curves(records, _epochs_so_far(records), np.cumsum(_column(records, "seconds")))


def _totals(steps: Sequence[Record], epochs: Sequence[Record], summary: Record) -> tuple[float, float, float]:
    """Seconds of training, samples, seconds that the loop waited for data: of the whole run as far as it came."""
    seconds = number(summary.get("train_seconds"))
    if np.isnan(seconds):
        seconds = float(np.nansum(_column(epochs, "seconds")))
        if steps and not np.isnan(latest := number(steps[-1].get("seconds"))):
            seconds = max(seconds, latest)
    samples = number(summary.get("samples"))
    if np.isnan(samples):
        samples = float(np.nansum(_column(epochs, "samples")))
        ended = number(epochs[-1].get("global_step")) if epochs else 0.0
        if steps and number(steps[-1].get("global_step")) > ended:  # of an epoch that was not finished
            samples += float(np.nan_to_num(number(steps[-1].get("samples"))))
    waits = [one for one in (_column(epochs, "data_s"), _column(steps, "data_s")) if np.isfinite(one).any()]
    return seconds, samples, max((float(np.nansum(one)) for one in waits), default=np.nan)


def _host(records: Sequence[Record], fallback: str) -> HostSamples | None:
    records = [one for one in records if one.get("kind") == "sample"]
    if not records:
        return None
    times = _column(records, "time")
    gpus = [[gpu for gpu in one.get("gpus") or () if type(gpu) is dict] for one in records]
    counts = np.array([len(each) for each in gpus])
    every = list(itertools.chain.from_iterable(gpus))
    load = _per_gpu(counts, every, "utilization")
    power = _per_gpu(counts, every, "power_w")
    with np.errstate(invalid="ignore"):  # 0 / 0: no GPU told
        mean_load = np.nansum(load, axis=1) / np.isfinite(load).sum(axis=1)
    host = records[0].get("host") or fallback.removeprefix("utilization-")
    return HostSamples(
        host=plain(host),
        seconds=times - np.nanmin(times) if np.isfinite(times).any() else np.arange(float(len(times))),
        cpu=_column(records, "cpu_percent"),
        gpu=mean_load,
        memory=_column(records, "memory_bytes"),
        gpu_memory=np.fmax.reduce(_per_gpu(counts, every, "memory_bytes"), axis=1),
        temperature=np.fmax.reduce(_per_gpu(counts, every, "temperature_c"), axis=1),
        power=np.where(np.isfinite(power).any(axis=1), np.nansum(power, axis=1), np.nan),
        network=_column(records, "network_sent") + _column(records, "network_received"),
    )


def _per_gpu(counts: NDArray[np.int_], gpus: Sequence[Record], key: str) -> Numbers:
    """One row per sample, one column per GPU; NaN where a sample has fewer GPUs than another.

    ``gpus`` are those of all samples, one sample after the other; ``counts`` says how many each sample has.
    """
    table = np.full((len(counts), max(1, counts.max())), np.nan)
    table[np.arange(table.shape[1]) < counts[:, None]] = _column(gpus, key)
    return table


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
