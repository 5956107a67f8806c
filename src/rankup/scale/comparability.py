"""May these runs be compared? Each finding here is a way in which a published study has fooled its authors.

An error (``COMPARABILITY``) forbids every ratio; a warning (``DOUBTS``) is printed below the table.
"""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rankup.findings.engine import Source, collect
from rankup.findings.finding import Confidence, Finding, Severity, in_order
from rankup.scale.grid import count_of
from rankup.scale.machine import Machine
from rankup.scale.measured import Measured
from rankup.scale.rows import compare
from rankup.scale.stats import accuracy_error

# What has to be equal, in the order of reading, and how people call it.
EQUAL = {
    "workload": "the workload",
    "data": "the data",
    "samples": "the number of samples trained",
    "steps": "the number of optimizer steps",
    "epochs": "the number of epochs",
    "global_batch": "the global batch",
    "precision": "the precision",
    "optimizer": "the optimizer",
    "lr": "the learning rate",
    "momentum": "the momentum",
    "nesterov": "Nesterov's momentum",
    "weight_decay": "the weight decay",
    "warmup": "the warm-up",
    "clip": "the clipping",
    "exact": "the exactness",
    "gamma": "the schedule (gamma)",
    "seed": "the seed",
    "settings": "the workload's settings (--set)",
    "device_type": "the kind of device",
    "device": "the device",
    "test_samples": "the number of test samples",
    "torch": "torch's version",
}
# In standard errors: equally good models, each on test data of its own, are farther apart in one case of twenty.
ACCURACY_ERRORS = 2.0


# In shares of the cores: above it something else than the cores made the difference.
LINEAR = 1.1
# Runnable processes per CPU before the study began: others compute here too.
BUSY = 0.5


@dataclass(frozen=True)
class StudyFacts:
    """Runs of two versions or more, and the machine that they ran on."""

    runs: Sequence[Measured]
    machine: Machine


def judge(runs: Sequence[Measured], machine: Machine) -> list[Finding]:
    """What is wrong with comparing ``runs`` as they ran on ``machine``, most severe first."""
    facts = StudyFacts(runs, machine)
    errors = collect(COMPARABILITY, facts)
    # Without ratios there is no efficiency to doubt.
    return in_order([*errors, *collect(DOUBTS, facts, ignore=("superlinear",) if errors else ())])


def _unequal_work(facts: StudyFacts) -> Iterable[Finding]:
    runs = facts.runs
    for name, words in EQUAL.items():
        said = _who_says((run, run.fact(name)) for run in runs)
        if len(said) > 1:
            yield Finding(
                f"unequal-{name.replace('_', '-')}",
                Severity.ERROR,
                f"{words} differs: " + ", ".join(f"{value} with {who}" for value, who in said),
                place=name,
                why="a speed-up compares runs that did the same work",
            )


def _not_as_asked(facts: StudyFacts) -> Iterable[Finding]:
    runs = facts.runs
    for run in _one_of_each(runs):
        asked = run.turn.processes * run.nodes
        if run.processes != asked:
            yield Finding(
                "other-process-count",
                Severity.ERROR,
                f"the study asked for {count_of(asked)}, and {count_of(run.processes)} trained together",
                place=str(run.path),
                why="processes that do not know of each other train the same samples several times",
            )


def _threads_changed(facts: StudyFacts) -> Iterable[Finding]:
    runs = facts.runs
    for first in _one_of_each(runs):
        threads = sorted({run.threads for run in runs if run.turn.processes == first.turn.processes})
        if len(threads) > 1:
            yield Finding(
                "unsteady-threads",
                Severity.ERROR,
                f"the threads of {count_of(first.turn.processes)} changed between repeats: "
                + " and ".join(map(str, threads)),
                place="threads",
                why="repeats of one version must be the same version",
                fix="--threads T holds them fixed",
            )


def _accuracies_apart(facts: StudyFacts) -> Iterable[Finding]:
    """Against the fewest processes. They share their test data, so that chance alone rarely reaches the threshold."""
    runs = facts.runs
    baseline, *others = _one_of_each(runs)
    expected = _median_accuracy(runs, baseline)
    samples = int(baseline.summary["test_samples"])
    for other in others:
        found = _median_accuracy(runs, other)
        allowed = ACCURACY_ERRORS * accuracy_error(expected, found, samples)
        if abs(found - expected) > allowed:
            yield Finding(
                "accuracy-differs",
                Severity.WARNING,
                f"{count_of(other.turn.processes)} end at a test accuracy of {found:.2%}, "
                f"{count_of(baseline.turn.processes)} at {expected:.2%}",
                place="test_accuracy",
                why=f"{samples:,} test samples allow {100 * allowed:.2f} points between equal models "
                f"({ACCURACY_ERRORS:g} standard errors); a run that trains another model is not a faster one",
                fix="compare the epochs' losses in the runs' records",
                confidence=Confidence.LIKELY,
            )


def _superlinear(facts: StudyFacts) -> Iterable[Finding]:
    runs = facts.runs
    for row in compare(runs):
        if row.efficiency > LINEAR:
            yield Finding(
                "superlinear",
                Severity.WARNING,
                f"{count_of(row.processes)} reach an efficiency of {row.efficiency:.0%}",
                place="efficiency",
                why="added cores bring at most 100%; the rest means that the baseline uses its own badly "
                "(too many threads for a small model, other work on the machine)",
                fix="--threads 1 gives every process one thread; an idle machine gives every thread a CPU",
                confidence=Confidence.LIKELY,
            )


def _oversubscribed(facts: StudyFacts) -> Iterable[Finding]:
    cpus = len(facts.machine.cpus)
    for run in _one_of_each(facts.runs):
        wanted = run.turn.processes * run.threads
        if run.on_cpu and wanted > cpus:
            yield Finding(
                "oversubscribed",
                Severity.WARNING,
                f"{count_of(run.turn.processes)} of {run.threads} thread{'s' * (run.threads > 1)} share {cpus} CPUs",
                place="threads",
                why="threads that wait for each other's CPU measure the operating system's scheduler",
                fix=f"at most {cpus} threads in all: fewer processes, or a smaller --threads",
            )


def _busy(facts: StudyFacts) -> Iterable[Finding]:
    machine = facts.machine
    if machine.load is not None and machine.load > BUSY * machine.cpu_count:
        yield Finding(
            "busy-machine",
            Severity.WARNING,
            f"the load was {machine.load:.1f} on {machine.cpu_count} CPUs before the first run",
            place=machine.hostname,
            why="other work on the machine slows the versions down unequally",
            fix="measure again on an idle machine, or on a node of your own",
            confidence=Confidence.LIKELY,
        )


COMPARABILITY: Mapping[str, Source[StudyFacts]] = {
    "unequal-work": _unequal_work,
    "other-process-count": _not_as_asked,
    "unsteady-threads": _threads_changed,
}
DOUBTS: Mapping[str, Source[StudyFacts]] = {
    "accuracy-differs": _accuracies_apart,
    "superlinear": _superlinear,
    "oversubscribed": _oversubscribed,
    "busy-machine": _busy,
}


def _one_of_each(runs: Sequence[Measured]) -> list[Measured]:
    """The first run of each number of processes, the fewest first."""
    return sorted(
        {run.turn.processes: run for run in reversed(runs)}.values(), key=lambda r: r.turn.processes
    )


def _median_accuracy(runs: Sequence[Measured], like: Measured) -> float:
    return statistics.median(run.accuracy for run in runs if run.turn.processes == like.turn.processes)


def _who_says(facts: Iterable[tuple[Measured, Any]]) -> list[tuple[str, str]]:
    """(value, the numbers of processes that say it), each value once."""
    said: dict[Hashable, tuple[Any, dict[str, None]]] = {}
    for run, value in facts:
        _, who = said.setdefault(repr(value), (value, {}))
        who[count_of(run.turn.processes)] = None
    return [
        (f"{value:,}" if type(value) is int else str(value), " and ".join(who))
        for value, who in said.values()
    ]
