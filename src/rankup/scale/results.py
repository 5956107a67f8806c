"""The results of a study: what was measured, as data, in ``results.json`` and back.

Everything that judges, compares, draws, or predicts reads these types; nothing of it runs anything.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rankup.core.files import write_atomic
from rankup.errors import RankupError
from rankup.findings.finding import Finding

VERSION = 2
_NUMERIC_FACTS = ("test_samples", "global_batch", "length", "optimizer_steps")
PARTS = ("data", "compute", "communication", "optimizer")


@dataclass(frozen=True)
class Epoch:
    """One epoch of one run. ``seconds`` of training since the run's first epoch began, at this epoch's end."""

    epoch: int
    seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require(_number(self.epoch), self, "epoch")
        _require(_number(self.seconds), self, "seconds")
        # None is a metric that was not finite: JSON has no NaN.
        good = isinstance(self.metrics, Mapping) and all(
            v is None or _number(v) for v in self.metrics.values()
        )
        _require(good, self, "metrics")


@dataclass(frozen=True)
class Measured:
    """One measured run: what was really done, never what was asked for.

    ``seconds``: wall time of the training, without start-up, warm-up, data set-up and evaluation. ``samples`` were
    really seen, over all ranks. ``accuracy`` is a share in [0, 1] or None if the run tells none. ``facts`` is what
    the run says of its work (the keys of ``comparability.EQUAL``: workload, data, epochs, global_batch, precision,
    tf32, optimizer, lr, …), ``all_samples`` if ``samples`` are without those of the first steps, and ``step_seconds``
    (least, most); a fact that it does not tell is absent. ``breakdown``: seconds of one step by part
    (``PARTS``), empty if it was not measured. ``nodes`` × processes per node = ``processes``; a process has one GPU
    (``device_type`` cuda) or ``threads`` threads.
    """

    repeat: int
    seconds: float
    samples: int
    steps: int
    nodes: int
    processes: int
    threads: int
    strategy: str
    device_type: str
    accuracy: float | None = None
    loss: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    breakdown: Mapping[str, float] = field(default_factory=dict)
    epochs: Sequence[Epoch] = ()
    path: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for what nobody can compute with: a file may be damaged, or written by hand."""
        for name in ("nodes", "processes", "threads"):
            _require(_whole(getattr(self, name), at_least=1), self, name)
        for name in ("repeat", "samples", "steps"):
            _require(_whole(getattr(self, name), at_least=0), self, name)
        _require(_finite(self.seconds) and self.seconds > 0, self, "seconds")
        for name in ("accuracy", "loss"):
            _require(getattr(self, name) is None or _number(getattr(self, name)), self, name)
        for name in ("facts", "breakdown"):
            _require(isinstance(getattr(self, name), Mapping), self, name)
        _require(all(_finite(part) and part >= 0 for part in self.breakdown.values()), self, "breakdown")
        if (steps := self.facts.get("step_seconds")) is not None and not (
            isinstance(steps, list) and len(steps) == 2 and all(_finite(one) and one > 0 for one in steps)
        ):
            raise ValueError(f"step_seconds of a run is {steps!r}")
        for fact in _NUMERIC_FACTS:
            if self.facts.get(fact) is not None and not _finite(self.facts[fact]):
                raise ValueError(f"{fact} of a run is {self.facts[fact]!r}")

    @property
    def rate(self) -> float:
        """Samples per second, over all ranks."""
        return self.samples / self.seconds

    @property
    def devices(self) -> int:
        """What a study pays for: GPUs, or cores (processes × threads) on CPUs."""
        return self.processes if self.device_type == "cuda" else self.processes * self.threads


@dataclass(frozen=True)
class Configuration:
    """One point of the grid: ``asked`` by the grid's keys (nodes, nproc, cpus-per-task, strategy, …), and its runs.

    ``failure`` is the finding (as a dict) that ended its last run, None if all of them ended well.
    """

    asked: Mapping[str, str | int]
    runs: Sequence[Measured] = ()
    failure: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        """By what ran: ``ddp, 2 × 4 processes``; by what was asked if nothing ran."""
        if not self.runs:
            return ", ".join(f"{key}={value}" for key, value in self.asked.items())
        run = self.runs[0]
        each, s = run.processes // run.nodes, "es" if run.processes > 1 else ""
        count = f"{run.nodes} × {each} processes" if run.nodes > 1 else f"{each} process{s}"
        return f"{run.strategy}, {count}" if run.strategy else count


@dataclass(frozen=True)
class StudyResults:
    """A study that has ended or goes on. ``target`` is the workload or the script with its arguments.

    ``scaling`` is ``strong`` (the global batch is fixed) or ``weak`` (samples per process are fixed). ``metric`` names
    what was timed: "" for the training seconds of the records, else the pattern over the output. ``made``: when, by
    which command and from which commit.
    """

    target: str
    scaling: str
    configurations: Sequence[Configuration]
    machine: Mapping[str, Any]
    repeats: int
    metric: str = ""
    load_before: float | None = None
    made: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises ValueError for what nobody can compute with."""
        _require(isinstance(self.made, Mapping), self, "made")
        _require(isinstance(self.machine, Mapping), self, "machine")
        for key in ("cpu_count", "cpus"):
            given = self.machine.get(key)
            good = given is None or (_whole(given) if key == "cpu_count" else isinstance(given, list | tuple))
            if not good:
                raise ValueError(f"{key} of the machine is {given!r}")
        _require(self.scaling in ("strong", "weak"), self, "scaling")
        _require(_whole(self.repeats, at_least=0), self, "repeats")
        _require(self.load_before is None or _finite(self.load_before), self, "load_before")

    def as_dict(self) -> dict[str, Any]:
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> StudyResults:
        fields = {key: value for key, value in given.items() if key != "version"}
        fields["configurations"] = [_configuration(one) for one in given["configurations"]]
        return cls(**fields)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _finite(value: Any) -> bool:
    return _number(value) and math.isfinite(value)


def _whole(value: Any, at_least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= at_least


def _require(good: bool, of: Any, name: str) -> None:
    if not good:
        what = {"Measured": "a run", "Epoch": "an epoch"}.get(type(of).__name__, "the study")
        raise ValueError(f"{name} of {what} is {getattr(of, name)!r}")


def _configuration(given: Mapping[str, Any]) -> Configuration:
    runs = [
        Measured(**{**run, "epochs": [Epoch(**epoch) for epoch in run.get("epochs", ())]})
        for run in given["runs"]
    ]
    if not isinstance(given["asked"], Mapping):
        raise ValueError(f"asked of a configuration is {given['asked']!r}")
    failure = given.get("failure")
    if failure is not None:
        Finding.from_dict(failure)  # raises what read_results names
    return Configuration(given["asked"], runs, failure)


def write_results(results: StudyResults, path: Path, **more: Any) -> None:
    """Write ``results.json``; ``more`` holds what follows from the results (rows, findings), for other programs."""
    write_atomic(path, json.dumps({**results.as_dict(), **more}, indent=2) + "\n", mode=0o600)


def read_results(path: Path) -> StudyResults:
    """Raises RankupError for a file that is not a study, is cut short, or is of another version."""
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RankupError(
            "bad-results",
            f"cannot read a study from {path.name}: {error}",
            context=str(path),
            hint="rankup scale writes results.json into the study's directory",
        ) from error
    if not isinstance(given, dict) or "version" not in given:
        raise RankupError(
            "bad-results",
            f"{path.name} is not a study's results: it has no version",
            context=str(path),
            hint="rankup scale writes results.json into the study's directory",
        )
    version = given["version"]
    if version != VERSION:
        raise RankupError(
            "other-version",
            f"the results are of version {version}, and this rankup reads version {VERSION}",
            context=str(path),
            hint="measure again with this version of rankup",
        )
    known = ("target", "scaling", "configurations", "machine", "repeats", "metric", "load_before", "made")
    try:
        return StudyResults.from_dict({key: given[key] for key in known if key in given})
    except KeyError as error:
        raise _bad(f"{error} is missing", path) from error
    except (TypeError, ValueError, AttributeError) as error:
        # Python's words for a missing field: "Measured.__init__() missing 1 required …: 'seconds'".
        raise _bad(str(error).replace("Measured.__init__()", "a run is"), path) from error


def _bad(why: str, path: Path) -> RankupError:
    return RankupError(
        "bad-results",
        f"the study is damaged: {why}",
        context=str(path),
        hint="rankup scale --resume DIR writes results.json again from the records",
    )
