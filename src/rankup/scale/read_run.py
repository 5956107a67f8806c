"""One run of a study as its own records or its output tell it: what was really done, never what was asked for."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rankup.core.records import newest_records, read_records
from rankup.core.rundir import RunDir
from rankup.core.units import TIME_UNITS
from rankup.errors import RankupError
from rankup.run.separate_models import optimizer_steps, trained_alone
from rankup.scale.plan import Trial
from rankup.scale.results import PARTS, Epoch, Measured

ENOUGH_RECORDS = 5
# The names under which a script may log what it reached, the first one that is there.
_ACCURACIES = ("test_accuracy", "val_accuracy", "accuracy", "test_acc", "val_acc", "acc")
_LOSSES = ("test_loss", "val_loss", "train_loss", "loss")
# Facts of ``rankup train``'s summary that a comparison looks at, besides those of the loop.
_OF_SUMMARY = (
    *(
        "data",
        "epochs",
        "global_batch",
        "precision",
        "optimizer",
        "lr",
        "momentum",
        "nesterov",
        "weight_decay",
    ),
    *(
        "warmup",
        "clip",
        "exact",
        "gamma",
        "seed",
        "settings",
        "device_type",
        "device",
        "test_samples",
        "torch",
    ),
)


def parse_metric(pattern: str) -> re.Pattern[str]:
    """The pattern of ``--metric``: one group, the seconds. Raises RankupError for any other."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise _bad_metric(f"the pattern is invalid: {error}", pattern) from None
    if compiled.groups != 1:
        raise _bad_metric(f"the pattern must have one group, and has {compiled.groups}", pattern)
    return compiled


def read_run(trial: Trial, run: RunDir, metric: re.Pattern[str] | None = None) -> Measured:
    """The measured run. Raises RankupError if it tells nothing that can be measured."""
    try:
        return _read_run(trial, run, metric)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise RankupError(
            "damaged-records",
            f"the run's records cannot be measured: {why}",
            context=str(run.records),
            hint="were they changed by hand? measure the configuration again",
            exit_code=1,
        ) from error


def _read_run(trial: Trial, run: RunDir, metric: re.Pattern[str] | None) -> Measured:
    begin, end, epochs, summary, logged = _records(run)
    # What only the first steps of the loop could tell, and how long its steps took.
    begin = {**begin, "facts": {**begin.get("facts", {}), **end.get("seen", {}), **_step_seconds(run)}}
    if (taken := end.get("optimizer_steps", optimizer_steps(run))) is not None:
        begin = {**begin, "facts": {**begin.get("facts", {}), "optimizer_steps": int(taken)}}
    if metric is not None:
        seconds = _matched(metric, run)
        if "world_size" not in (facts := begin.get("facts", {})) and trained_alone(run) > 1:
            begin = {**begin, "facts": {**facts, "world_size": 1}}
        return _measured(
            *(trial, run, begin, summary, epochs, logged),
            *(seconds, end.get("samples", 0), end.get("steps", 0)),
        )
    if summary:
        steps = sum(int(epoch["steps"]) for epoch in epochs)
        seconds, samples = summary["train_seconds"], int(summary["samples"])
        return _measured(trial, run, begin, summary, epochs, logged, seconds, samples, steps)
    if not end:
        raise RankupError(
            "nothing-measured",
            "the run left no records of a training that came to its end",
            context=str(run.records),
            hint="the script trains in a loop over run.steps(…) or run.epochs(…), or prints what it took: "
            "--metric 'Training time = ([0-9.]+)'",
            exit_code=1,
        )
    warm = bool(end["warm_samples"] and end["warm_seconds"] > 0)
    seconds, samples = (
        (end["warm_seconds"], end["warm_samples"]) if warm else (end["seconds"], end["samples"])
    )
    if samples != end["samples"]:
        begin = {**begin, "facts": {**begin.get("facts", {}), "all_samples": int(end["samples"])}}
    return _measured(trial, run, begin, summary, epochs, logged, seconds, samples, end["steps"])


def with_shares(runs: Sequence[Sequence[Measured]]) -> list[list[Measured]]:
    """All runs of a study, with accuracies as shares: a script logs all of them in percent, or none. One above 1 in any
    epoch of any run tells that 0.9 is 0.9 %."""
    told = [
        value
        for run in itertools.chain.from_iterable(runs)
        for value in (run.accuracy, *(_first(_ACCURACIES, epoch.metrics) for epoch in run.epochs))
        if value is not None
    ]
    if not any(1 < value <= 100 for value in told):
        return [list(each) for each in runs]
    return [
        [replace(run, accuracy=None if run.accuracy is None else run.accuracy / 100) for run in each]
        for each in runs
    ]


def read_breakdown(run: RunDir) -> dict[str, float]:
    """Seconds of one step by part (``PARTS``), of a run that measured them; empty if it did not."""
    found = read_records(run.records / "steps.jsonl", "breakdown")
    return {part: found[-1]["parts"][part] for part in PARTS if part in found[-1]["parts"]} if found else {}


def _records(
    run: RunDir,
) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]], dict[str, Any], dict[str, Any]]:
    """(begin, end, epochs, summary, logged) of the run's first training; empty if there is none. ``logged``: numbers
    from after its last epoch, as a script logs that evaluates at the end."""
    steps = newest_records(read_records(run.records / "steps.jsonl"))
    begins = [one for one in steps if one["kind"] == "begin"]
    epochs = read_records(run.records / "epochs.jsonl", "epoch")
    latest = {
        (one.get("training", ""), one["epoch"]): one for one in epochs
    }  # of the last attempt that trained it
    name = begins[0].get("training", "") if begins else ""
    mine = [
        one for (training, _), one in sorted(latest.items(), key=lambda pair: pair[0][1]) if training == name
    ]
    summaries = read_records(run.records / "epochs.jsonl", "summary")
    trained = max((one.get("global_step", 0) for one in mine), default=0)
    logged: dict[str, Any] = {}
    for one in steps:
        if one["kind"] == "log" and one.get("training", "") == name and one["global_step"] >= trained:
            logged |= one["metrics"]
    summary = summaries[-1] if summaries else {}
    return begins[0] if begins else {}, _whole_end(steps, name), mine, summary, logged


def _step_seconds(run: RunDir) -> dict[str, Any]:
    """``step_seconds``: of a step, the middle nine tenths of what the records of a training tell, without the first;
    absent where fewer than ``ENOUGH_RECORDS`` tell it."""
    told = [one for one in newest_records(read_records(run.records / "steps.jsonl")) if one["kind"] == "step"]
    seconds = sorted(
        (after["seconds"] - before["seconds"]) / (after["global_step"] - before["global_step"])
        for before, after in itertools.pairwise(told)
        if after["global_step"] > before["global_step"] and after["epoch"] == before["epoch"]
    )
    if len(seconds) < ENOUGH_RECORDS:
        return {}
    cut = len(seconds) // 20
    return {"step_seconds": [seconds[cut], seconds[-cut - 1]]}


def _whole_end(steps: Sequence[Mapping[str, Any]], training: str) -> dict[str, Any]:
    """The ends of all loops of ``training`` as one: ``run.steps(data, epochs=epoch + 1)`` is a loop for each epoch.

    Without the first steps of the first of them alone: the others begin when everything is warm. Empty if a loop did
    not come to its end.
    """
    ends: list[Mapping[str, Any]] = []
    running = ""  # the training of the loop that has begun last
    open_loops = 0
    for one in steps:
        if one["kind"] == "begin":
            running = one.get("training", "")
            open_loops += running == training
        elif one["kind"] == "end" and running == training:
            open_loops -= 1
            ends.append(one)
    if not ends or open_loops:
        return {}
    first, *later = ends
    whole = {name: sum(one[name] for one in ends) for name in ("seconds", "samples", "steps")}
    if all("optimizer_steps" in one for one in ends):
        whole["optimizer_steps"] = sum(one["optimizer_steps"] for one in ends)
    if seen := first.get("seen"):
        whole["seen"] = seen
    warm = bool(first["warm_samples"] and first["warm_seconds"] > 0)
    for name in ("seconds", "samples"):
        whole[f"warm_{name}"] = first[f"warm_{name}"] + sum(one[name] for one in later) if warm else 0
    return whole


def _measured(
    trial: Trial,
    run: RunDir,
    begin: Mapping[str, Any],
    summary: Mapping[str, Any],
    epochs: Sequence[Mapping[str, Any]],
    logged: Mapping[str, Any],
    seconds: float,
    samples: int,
    steps: int,
) -> Measured:
    facts = dict(begin.get("facts", {}))
    facts |= {key: summary[key] for key in _OF_SUMMARY if key in summary}
    if summary:
        facts["workload"] = summary["name"]
    passed, told = 0.0, []
    for epoch in epochs:
        passed += epoch["seconds"]
        told.append(Epoch(epoch["epoch"], passed, epoch.get("metrics", {})))
    last = told[-1].metrics if told else {}
    asked = trial.asked
    reached = {**last, **logged, **summary}
    accuracy = _first(_ACCURACIES, reached)
    return Measured(
        repeat=trial.repeat,
        seconds=float(seconds),
        samples=int(samples),
        steps=int(steps),
        nodes=int(facts.get("nodes", asked.get("nodes", 1))),
        processes=int(facts.get("world_size", trial.processes)),
        threads=int(facts.get("threads", asked.get("cpus-per-task", 1))),
        strategy=str(facts.get("strategy", asked.get("strategy", "unknown"))),
        device_type=str(facts.get("device_type", asked.get("device", "cuda" if "gpus" in asked else "cpu"))),
        accuracy=accuracy,
        loss=_first(_LOSSES, reached),
        facts=facts,
        epochs=told,
        path=str(run.path),
    )


def _first(names: Sequence[str], numbers: Mapping[str, Any]) -> float | None:
    return next((float(numbers[name]) for name in names if isinstance(numbers.get(name), int | float)), None)


def _matched(metric: re.Pattern[str], run: RunDir) -> float:
    """The last match in what the run printed, rank 0 first."""
    for name in ("rank-0.out", "rank-0.err", "job.log"):
        for path in sorted(run.logs.rglob(name)) if run.logs.is_dir() else ():
            text = _text(path)
            if found := list(metric.finditer(text)):
                line = text[found[-1].end(1) :].partition("\n")[0]
                return _seconds(found[-1][1] or "", line, metric.pattern)
    raise RankupError(
        "metric-not-found",
        f"nothing that the run printed matches {metric.pattern!r}",
        context=str(run.logs),
        hint="try the pattern on the log: grep -E PATTERN; without --metric the records of run.steps are used",
        exit_code=1,
    )


def _seconds(text: str, behind: str, pattern: str) -> float:
    """``behind`` is the rest of the line: ``3.5 min`` is not 3.5 seconds, and ``3.5 images/s`` is no time."""
    inside = re.fullmatch(r"([\d.,]+)\s*([^\W\d]+)", text.strip())
    number, unit = (inside[1], inside[2]) if inside else (text.strip(), _unit(behind))
    if unit and unit.lower() not in TIME_UNITS:
        raise _bad_metric(
            f"the group matched {text!r}, and {unit!r} behind it is not a unit of time", pattern
        )
    try:
        seconds = float(_with_decimal_point(number)) * TIME_UNITS[unit.lower() or "s"]
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        either = bool(re.fullmatch(r"\d{1,3},\d{3}", number))
        what = "may be thousands or decimals" if either else "is not a time in seconds"
        raise _bad_metric(f"the group matched {text!r}, which {what}", pattern)
    return seconds


def _unit(behind: str) -> str:
    """What stands behind a number and belongs to it: its unit, or its own next digits. "" if a sentence goes on."""
    if attached := re.match(r"(?:[.,:]?\d|[^\W\d]|[%/])[^\s;)\]}\"']*", behind):
        return attached[0].rstrip(".,:")
    word = re.match(r"\s+([^\W\d]+|%)(\s*/\s*\w+|\s+per\s+\w+|\s*\d+\s*[^\W\d]+)?", behind)
    if word and (
        word[1].lower() in TIME_UNITS or word[1] == "%" or (word[2] and not word[2].strip()[0].isdigit())
    ):
        return word[1] + (word[2] or "")
    return ""


def _with_decimal_point(text: str) -> str:
    """``1,234.5`` and ``1.234,5`` are 1234.5, ``12,34`` is 12.34. ``1,234`` stays: it may be either."""
    if re.fullmatch(r"\d{1,3}(,\d{3})+\.\d*|\d{1,3}(,\d{3}){2,}", text):
        return text.replace(",", "")
    if re.fullmatch(r"\d{1,3}(\.\d{3})+,\d+|\d+,(\d{1,2}|\d{4,})|0+,\d+", text):
        return text.replace(".", "").replace(",", ".")
    return text


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _bad_metric(why: str, pattern: str) -> RankupError:
    return RankupError(
        "bad-metric", why, context=f"--metric {pattern!r}", hint="e.g. --metric 'Training time = ([0-9.]+)'"
    )
