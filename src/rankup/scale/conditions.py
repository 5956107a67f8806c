"""Under which conditions was it measured? Short or uneven runs, a busy machine, shared cores, and results that the
devices cannot explain."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping

from rankup.findings.engine import Source
from rankup.findings.finding import Confidence, Finding, Severity
from rankup.scale.families import Family, measured
from rankup.scale.results import Configuration, StudyResults
from rankup.scale.rows import counted, enough, ratio

# Efficiency above which something else than the devices made the difference, if the spread does not explain it.
LINEAR = 1.05
# Runnable processes per CPU before the study began, above which others compute here too.
BUSY = 0.5
# Share of a baseline's step that waits for data, from which the loader explains a superlinear result.
LOADER = 0.2
# Seconds of a run below which its clock, its start and the system's ticks are a part of it; and below which they are
# all of it.
SHORT, TOO_SHORT = 1.0, 0.1
# Slowest run / fastest run of a configuration: from here on something else was measured too, or nothing but that.
WIDE, TOO_WIDE = 1.3, 2.0
# Slowest / fastest steps within a run, by its records.
UNSTEADY = 2.0


def _busy(family: Family) -> Iterable[Finding]:
    """Others' load and our threads do not fit the CPUs. GPUs suffer less: a warning there."""
    study = family.study
    cpus, load = _cpus(study), study.load_before
    if not cpus or load is None:
        return
    free = cpus - max(_threads_per_node(one) for one in measured(study))
    if load <= BUSY * cpus and load <= max(free, 0) + max(BUSY, 0.1 * cpus):
        return
    on_gpus = all(run.device_type == "cuda" for one in measured(study) for run in one.runs)
    yield Finding(
        "busy-machine",
        Severity.WARNING if on_gpus else Severity.ERROR,
        f"others used {load:.1f} of {cpus} CPUs before the first run",
        place=str(study.machine.get("hostname", "")),
        why="other work on the machine slows the configurations down unequally",
        fix="measure again on an idle machine, or on a node of your own",
        confidence=Confidence.LIKELY if on_gpus else Confidence.SURE,
    )


def _oversubscribed(family: Family) -> Iterable[Finding]:
    cpus = _cpus(family.study)
    for one in family.configurations:
        if _shares_cores(one, cpus):
            each = " on each node" if one.runs[0].nodes > 1 else ""
            yield Finding(
                "oversubscribed",
                Severity.WARNING,
                f"{family.label(one)}: {_threads_per_node(one)} threads share {cpus} CPUs" + each,
                place="threads",
                why="threads that wait for each other's CPU measure the operating system's scheduler",
                fix=f"at most {cpus} threads{each or ' in all'}: fewer processes, or a smaller --threads",
            )


def _superlinear(family: Family) -> Iterable[Finding]:
    for one in family.others:
        if not (enough(family, one) and counted(family, one)):
            continue
        found = ratio(family, one)
        low, _ = found.interval or found.range or (found.speedup, found.speedup)
        if found.efficiency <= LINEAR or found.efficiency_of(low) <= 1:
            continue
        cpus = _cpus(family.study)
        shared = any(_shares_cores(c, cpus) for c in (family.baseline, one))
        yield Finding(
            "superlinear",
            Severity.ERROR if shared else Severity.WARNING,
            f"{found.name} reaches an efficiency of {found.efficiency:.0%} against {found.baseline}",
            place="efficiency",
            why="added devices bring at most 100 %. " + _cause(family, one, shared),
            fix="find what makes the baseline slow, and measure it without that",
            confidence=Confidence.SURE if shared else Confidence.LIKELY,
        )


def _cause(family: Family, one: Configuration, shared: bool) -> str:
    """The likely cause, from what was measured."""
    if shared:
        return "The cause: threads that share cores, which slows the configurations down unequally"
    parts = family.baseline.runs[0].breakdown
    waiting = parts.get("data", 0.0) / sum(parts.values()) if parts else 0.0
    if waiting > LOADER:
        return (
            f"The likely cause: the baseline waits {waiting:.0%} of each step for data, and more processes have more "
            "loader workers"
        )
    before, after = family.baseline.runs[0], one.runs[0]
    if before.device_type == "cpu" and before.threads > 1:
        return (
            f"The likely cause: {before.threads} threads of one process wait for each other in a small model; "
            "--threads 1 shows it"
        )
    batch = before.facts.get("global_batch")
    if batch and after.processes > before.processes and family.study.scaling == "strong":
        return (
            f"The likely cause: {batch / after.processes:g} samples per process fit caches or memory that "
            f"{batch / before.processes:g} do not"
        )
    return "The likely cause: the baseline is slowed down by something that was not measured"


def _short_runs(family: Family) -> Iterable[Finding]:
    for one in family.configurations:
        median = statistics.median(run.seconds for run in one.runs)
        if median < SHORT:
            yield Finding(
                "short-runs",
                Severity.ERROR if median < TOO_SHORT else Severity.WARNING,
                f"a run of {family.label(one)} takes {1000 * median:.3g} ms",
                place="runtime",
                why="such runs measure the clock, the start of the loop and the system's other work",
                fix="more epochs or more samples: a run of some seconds at least",
            )


def _wide_spread(family: Family) -> Iterable[Finding]:
    for one in family.configurations:
        seconds = [run.seconds for run in one.runs]
        times = max(seconds) / min(seconds)
        if times >= WIDE:
            yield Finding(
                "wide-spread",
                Severity.ERROR if times >= TOO_WIDE else Severity.WARNING,
                f"the slowest run of {family.label(one)} takes {times:.1f} times as long as its fastest",
                place="runtime",
                why="the runs of one configuration do the same work: something else decides their time",
                fix="find what it is (other programs, a warm cache, a device that throttles); then measure again",
            )


def _unsteady_steps(family: Family) -> Iterable[Finding]:
    for one in family.configurations:
        told = [run.facts["step_seconds"] for run in one.runs if "step_seconds" in run.facts]
        low, high = max(told, key=lambda pair: pair[1] / pair[0], default=(1.0, 1.0))
        if high / low >= UNSTEADY:
            yield Finding(
                "unsteady-steps",
                Severity.WARNING,
                f"within a run of {family.label(one)} a step takes {1000 * low:.3g} to {1000 * high:.3g} ms",
                place="step",
                why="the runtime is a mean over different steps, and says nothing of the next run",
                fix="find what changes: a loader that runs dry, a device that throttles, other programs",
            )


def _warm_up_unknown(family: Family) -> Iterable[Finding]:
    runs = [run for one in family.configurations for run in one.runs]
    if family.study.metric and not all("warm_up" in run.facts for run in runs):
        yield Finding(
            "warm-up-unknown",
            Severity.WARNING,
            f"nobody knows whether {family.study.metric!r} leaves out the first steps",
            place="metric",
            why="start-up, the download of data and the first steps are the same time on any number of devices",
            fix="begin to time after the first steps, or use run.steps, whose records leave them out",
            confidence=Confidence.LIKELY,
        )


def _work_unknown(family: Family) -> Iterable[Finding]:
    """A pattern finds a time. Weak scaling is refused then, see ``samples-unknown``."""
    silent = [
        one
        for one in family.configurations
        if not all(run.samples or run.facts.get("optimizer_steps") for run in one.runs)
    ]
    if silent and family.study.metric and family.study.scaling == "strong":
        yield Finding(
            "work-unknown",
            Severity.WARNING,
            "neither samples nor optimizer steps are known of "
            + "; ".join(family.label(one) for one in silent),
            place="metric",
            why="a program that trains less is faster, and nobody sees that it does",
            fix="compare the samples that each configuration trains, or train in a loop over run.steps or "
            "run.epochs, which count them",
            confidence=Confidence.LIKELY,
        )


CONDITIONS: Mapping[str, Source[Family]] = {
    "short-runs": _short_runs,
    "wide-spread": _wide_spread,
    "unsteady-steps": _unsteady_steps,
    "superlinear": _superlinear,
    "oversubscribed": _oversubscribed,
    "busy-machine": _busy,
    "warm-up-unknown": _warm_up_unknown,
    "work-unknown": _work_unknown,
}


def _cpus(study: StudyResults) -> int:
    """CPUs of a node; 0 if unknown."""
    machine = study.machine
    return len(machine.get("cpus") or ()) or int(machine.get("cpu_count") or 0)


def _threads_per_node(one: Configuration) -> int:
    run = one.runs[0]
    return run.processes // run.nodes * run.threads if run.device_type == "cpu" else 0


def _shares_cores(one: Configuration, cpus: int) -> bool:
    return bool(cpus) and _threads_per_node(one) > cpus
