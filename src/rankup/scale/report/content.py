"""What a report holds, from a study or from runs."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from rankup.core import forked
from rankup.errors import RankupError
from rankup.findings.finding import Finding, Severity, in_order
from rankup.scale.parts import largest_loss
from rankup.scale.report.rank_records import RankLines, read_ranks
from rankup.scale.report.rows import ReportRow, names, rows_of
from rankup.scale.report.run_records import Curve, RunRecords, outcome_error, read_run, run_name
from rankup.scale.report.text import plain, plural, short
from rankup.scale.results import Configuration, Measured, StudyResults


@dataclass(frozen=True)
class Group:
    """The runs that share one line of a legend: the repeats of a configuration, or one run."""

    label: str
    runs: Sequence[RunRecords]


@dataclass(frozen=True)
class Content:
    """``facts`` say what was run and where; ``rows`` are those of a study, none of plain runs; ``ranks`` are those of a
    single run; ``loss``: the study's largest, as its table says it."""

    title: str
    facts: Sequence[tuple[str, str]]
    groups: Sequence[Group]
    rows: Sequence[ReportRow] = ()
    findings: Sequence[Finding] = ()
    scaling: str = ""
    failed: Sequence[str] = field(default=())
    ranks: RankLines | None = None
    loss: str = ""

    @property
    def runs(self) -> list[RunRecords]:
        return [run for group in self.groups for run in group.runs]


def of_study(
    results: StudyResults,
    folder: Path,
    *,
    rows: Sequence[ReportRow] | None = None,
    findings: Sequence[Finding] = (),
    title: str = "",
) -> Content:
    """A study whose ``results.json`` lies in ``folder``. ``rows`` with ratios and intervals replace the plain ones."""
    ran = [one for one in results.configurations if one.runs]
    labels = [name for name, _ in names(ran, results.scaling)]
    named = [(run, label) for one, label in zip(ran, labels, strict=True) for run in one.runs]
    read = forked.each(lambda pair: _measured(*pair, folder), named)
    groups = [
        Group(label, list(itertools.islice(read, len(one.runs))))
        for one, label in zip(ran, labels, strict=True)
    ]
    found = [*(findings or _failures(results.configurations)), *_doubts(groups)]
    return Content(
        title=plain(title or f"Scaling study of {results.target}"),
        facts=_study_facts(results),
        groups=groups,
        rows=rows_of(results) if rows is None else rows,
        findings=in_order(found),
        scaling=results.scaling,
        failed=[plain(one.name) for one in results.configurations if one.failure],
        loss=largest_loss(results),
    )


def of_runs(paths: Sequence[Path], *, title: str = "") -> Content:
    """Any runs. One whose records cannot be read is a finding, unless none can be read."""
    groups: list[Group] = []
    found: list[Finding] = []
    for path, run in zip(paths, forked.each(_read, paths), strict=True):
        name = plain(run_name(path))
        if isinstance(run, Finding):
            found.append(run)
            continue
        groups.append(Group(name, [run]))
        if run.outcome == "failed":
            why = plain(outcome_error(path))
            found.append(Finding("failed-run", Severity.WARNING, f"{name} failed", str(path), why=why))
    if not groups:
        raise RankupError(found[0].code, found[0].message, context=found[0].place, hint=found[0].fix)
    return Content(
        title=plain(title or (groups[0].label if len(groups) == 1 else plural(len(groups), "run"))),
        facts=_run_facts([group.runs[0] for group in groups]),
        groups=groups,
        findings=in_order([*found, *_doubts(groups)]),
        ranks=read_ranks(Path(groups[0].runs[0].path)) if len(groups) == 1 else None,
    )


def _read(path: Path) -> RunRecords | Finding:
    try:
        return read_run(path, plain(run_name(path)))
    except RankupError as error:
        return Finding(error.code, Severity.WARNING, error.message, error.context, fix=error.hint)


def _measured(run: Measured, label: str, folder: Path) -> RunRecords:
    """The records of a run of a study; what the study has noted of it if they are gone."""
    path = next(
        (one for one in (Path(run.path), folder / Path(run.path).name) if (one / "records").is_dir()), None
    )
    if run.path and path is not None:
        try:
            return read_run(path, f"{label}, repeat {run.repeat}")
        except RankupError:  # emptied, or somebody else's: the study has the epochs
            pass
    epochs = np.array([float(epoch.epoch) for epoch in run.epochs])
    seconds = np.array([epoch.seconds for epoch in run.epochs])
    metrics = dict.fromkeys(name for epoch in run.epochs for name in epoch.metrics)
    curves = {
        plain(name): Curve.of(
            epochs, seconds, np.array([epoch.metrics.get(name, np.nan) for epoch in run.epochs])
        )
        for name in metrics
    }
    return RunRecords(
        name=f"{label}, repeat {run.repeat}",
        path=run.path,
        summary={"strategy": run.strategy, "world_size": run.processes, "nodes": run.nodes, **run.facts},
        epochs=curves,
        seconds=run.seconds,
        samples=run.samples,
        records=len(run.epochs),
    )


def _failures(configurations: Sequence[Configuration]) -> list[Finding]:
    found = []
    for one in configurations:
        if one.failure:
            said = one.failure
            found.append(
                Finding(
                    plain(said.get("code") or "failed-run"),
                    Severity.WARNING,
                    f"{one.name} failed: {said.get('message') or 'no reason was recorded'}",
                    str(said.get("place") or ""),
                    str(said.get("why") or ""),
                    str(said.get("fix") or ""),
                )
            )
    return found


def _doubts(groups: Sequence[Group]) -> list[Finding]:
    """What the curves themselves say is wrong."""
    return [
        Finding(
            "not-finite",
            Severity.WARNING,
            f"{run.name}: {metric} was not finite in {curve.lost:,} of {curve.measured + curve.lost:,} records",
            place=run.path,
            why="the figures leave these points out; a training with a loss of NaN has learned nothing since",
            fix="a smaller learning rate, or clipped gradients; fp16 requires run.backward and run.step",
        )
        for group in groups
        for run in group.runs
        for curves in (run.epochs, run.steps)
        for metric, curve in curves.items()
        if curve.lost
    ]


def _study_facts(results: StudyResults) -> list[tuple[str, str]]:
    machine = results.machine
    cpus = machine.get("cpu_count")
    kind = {"strong": "strong (the global batch is fixed)", "weak": "weak (samples per process are fixed)"}
    ran = sum(len(one.runs) for one in results.configurations)
    facts: Mapping[str, Any] = {
        "Work": results.target,
        "Command": results.made.get("command", ""),
        "Date": results.made.get("date", ""),
        "Commit": results.made.get("commit", ""),
        "Scaling": kind.get(results.scaling, results.scaling),
        "Configurations": f"{len(results.configurations)}, {results.repeats} repeats each asked, {ran} runs measured",
        "Timed": f"by the pattern {results.metric}"
        if results.metric
        else "training without start-up and evaluation",
        **_common(results),
        "Machine": ", ".join(
            filter(
                None,
                (
                    str(machine.get("hostname") or ""),
                    str(machine.get("cpu") or ""),
                    plural(cpus, "CPU") if isinstance(cpus, int) else "",
                ),
            )
        ),
        "Software": ", ".join(
            [
                f"rankup {version('rankup')}",
                *([f"Python {machine['python']}"] if machine.get("python") else []),
            ]
        ),
        "Load before": short(results.load_before) if results.load_before is not None else "",
    }
    return [(name, plain(value)) for name, value in facts.items() if value]


def _common(results: StudyResults) -> dict[str, str]:
    """What the runs say of their work; where they differ, each value once."""
    words = {
        "Model": "model", "Data": "data", "Inputs": "inputs", "Optimizer": "optimizer", "Learning rate": "lr",
        "Global batch": "global_batch", "Epochs": "epochs", "Precision": "precision", "Device": "device",
        "torch": "torch",
    }  # fmt: skip
    runs = [run for one in results.configurations for run in one.runs]
    told = {
        word: dict.fromkeys(f"{value:g}" if isinstance(value, float) else str(value) for run in runs
                            if (value := run.facts.get(key)) is not None)
        for word, key in words.items()
    }  # fmt: skip
    return {word: ", ".join(values) for word, values in told.items()}


def _run_facts(runs: Sequence[RunRecords]) -> list[tuple[str, str]]:
    """What all runs have in common."""
    words = {
        "Work": "name", "Data": "data", "Strategy": "strategy", "Processes": "world_size", "Nodes": "nodes",
        "Threads each": "threads", "Device": "device", "Precision": "precision", "Global batch": "global_batch",
        "torch": "torch",
    }  # fmt: skip
    facts = []
    for word, key in words.items():
        values = {str(run.summary.get(key, "")) for run in runs}
        if len(values) == 1 and (value := values.pop()):
            facts.append((word, plain(value)))
    told = [run.goodput for run in runs if run.goodput is not None]
    if told:
        facts.append(("Goodput", functools.reduce(operator.add, told).line().removeprefix("goodput ")))
    return [*facts, ("Records", f"{sum(run.records for run in runs):,}")]
