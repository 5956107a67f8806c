"""The summary of a report, in sentences with numbers: the answer first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rankup.core.units import duration
from rankup.scale.report.content import Content
from rankup.scale.report.figures.cost import frontier
from rankup.scale.report.rows import ReportRow, Spread, hour_word
from rankup.scale.report.run_records import RunRecords
from rankup.scale.report.text import listed, percent, plain, plural, short


def summary(content: Content) -> list[str]:
    """Two to five sentences, the most important first."""
    said = (
        _of_rows(content.rows, content.loss)
        if content.rows
        else _of_runs(content.runs)
        if content.groups
        else []
    )
    if not said and not content.rows and len(content.runs) == 1:
        said = ["The run has not trained a step yet."]
    said = said or ["Nothing ran to its end, so there is nothing to compare."]
    return [*said, f"Failed: {listed(content.failed)}."] if content.failed else said


def _of_rows(rows: Sequence[ReportRow], loss: str) -> list[str]:
    said = []
    fastest = min(rows, key=lambda row: row.seconds.median)
    base = next((row for row in rows if row.speedup and row.speedup.low == row.speedup.high == 1), None)
    fair = [row for row in rows if row.speedup and not row.unfair]
    best = max(fair, key=lambda row: row.speedup.median, default=None)  # type: ignore[union-attr]
    if best and base and best is not base and best.speedup:
        said.append(
            f"{_capital(best.name)} {_verb(best, 'train')} {short(best.speedup.median)} times as fast as {base.name}"
            f"{_range(best.speedup, best)}."
        )
    if len(rows) == 1:
        said.append(
            f"One configuration ran, {fastest.name}: {duration(fastest.seconds.median)} of training, "
            f"{short(fastest.rate.median)} samples/s. A comparison requires a second one."
        )
    elif not said:
        slowest = max(rows, key=lambda row: row.seconds.median)
        said.append(
            f"The fastest is {fastest.name}: {duration(fastest.seconds.median)} of training{_times(fastest)}. "
            f"The slowest is {slowest.name}: {duration(slowest.seconds.median)}{_times(slowest)}."
        )
    if loss:
        said.append(_capital(plain(loss)) + ".")
    if len(rows) > 1:
        cheapest = min(rows, key=lambda row: row.device_hours)
        on = frontier(rows)
        said.append(
            f"The cheapest is {cheapest.name} ({_hours(cheapest)}), the fastest {fastest.name} ({_hours(fastest)})"
            + (
                f"; {plural(len(on), 'configuration')} of {len(rows)} "
                f"{'is' if len(on) == 1 else 'are'} worth considering."
                if len(on) < len(rows)
                else "."
            )
        )
    accuracies = [row.accuracy for row in rows if row.accuracy]
    if accuracies:
        low, high = min(one.low for one in accuracies), max(one.high for one in accuracies)
        ends = f"at {low:.2%}" if low == high else f"between {low:.2%} and {high:.2%}"
        said.append(f"The accuracy ends {ends}.".replace("%", " %"))
    return said


def _of_runs(runs: Sequence[RunRecords]) -> list[str]:
    said = []
    trained = [run for run in runs if run.seconds > 0]
    if len(runs) == 1:
        (run,) = runs
        rate = f", {short(run.rate)} samples/s" if run.rate > 0 else ""
        how = {"done": "The run ended after", "failed": "The run failed after"}.get(
            run.outcome, "So far the run has had"
        )
        if trained:
            said.append(f"{how} {duration(run.seconds)} of training{rate}.")
    elif trained:
        seconds = Spread.of([run.seconds for run in trained])
        said.append(
            f"{plural(len(runs), 'run')} trained for {duration(seconds.low)} to {duration(seconds.high)} each, "
            f"{duration(sum(run.seconds for run in trained))} together."
        )
    for kind, metrics, best in (
        ("accuracy", ("test_accuracy", "accuracy"), max),
        ("loss", ("test_loss", "loss"), min),
    ):
        # The first of the metrics that any run tells: losses of training and of testing are not compared.
        told = [[(run.last(one), run.name) for run in runs if np.isfinite(run.last(one))] for one in metrics]
        ends, metric = next(((ends, one) for ends, one in zip(told, metrics, strict=True) if ends), ([], ""))
        if ends:
            value, name = best(ends)
            word = metric.replace("_", " ")
            shown = f"{100 * value:.2f} %" if kind == "accuracy" else short(value)
            said.append(
                f"The last {word} is {shown}."
                if len(runs) == 1
                else f"The best last {word} is {shown}, by {name}."
            )
    waits = [(run.waited, run.name) for run in runs if np.isfinite(run.waited)]
    if waits:
        share, name = max(waits)
        said.append(
            f"{percent(share)} of the training time was spent waiting for data"
            + ("." if len(runs) == 1 else f" in {name}, the most of all runs.")
        )
    for what, device in (("gpu", "GPUs"), ("cpu", "CPUs")):
        busy = [getattr(host, what) for run in runs for host in run.hosts]
        known = np.concatenate(busy)[np.isfinite(np.concatenate(busy))] if busy else np.zeros(0)
        if len(known):
            said.append(f"The {device} were {known.mean():.0f} % busy on average.")
    return said


def _range(spread: Spread, row: ReportRow) -> str:
    return f" ({row.spread} {short(spread.low)}–{short(spread.high)})" if spread.high > spread.low else ""


def _times(row: ReportRow) -> str:
    one = row.seconds
    return f" ({row.spread} {duration(one.low)} – {duration(one.high)})" if one.high > one.low else ""


def _hours(row: ReportRow) -> str:
    return f"{short(row.device_hours)} {hour_word([row])}"


def _verb(row: ReportRow, verb: str) -> str:
    return verb if row.processes > 1 else verb + "s"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
