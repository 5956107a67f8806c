"""Did all configurations do the same work, with the same means per process?"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from typing import Any

from rankup.findings.engine import Source
from rankup.findings.finding import Confidence, Finding, Severity
from rankup.scale.families import Family
from rankup.scale.plan import count_of
from rankup.scale.results import Configuration, Measured

# What has to be equal, in the order of reading: how people call it, and the fix.
EQUAL = {
    "workload": ("the workload", "the same model in all configurations"),
    "model": ("the model", "the same model in all configurations"),
    "data": ("the data", "the same data set in all configurations"),
    "samples": (
        "the number of samples trained",
        "count samples where they are trained, not batches × batch size",
    ),
    "steps": ("the number of steps", "the same global batch, with the last batch treated alike"),
    "epochs": ("the number of epochs", "the same --epochs"),
    "global_batch": ("the global batch", "the same --global-batch; or a weak-scaling study: --weak"),
    "precision": ("the precision", "the same --precision, also for the baseline"),
    "autocast": (
        "the script's own autocast",
        "the same autocast in all configurations, also for the baseline",
    ),
    "inputs": ("the shape of the inputs", "the same input size in all configurations"),
    "tf32": ("TF32", "the same torch.backends flags, also for the baseline"),
    "optimizer": ("the optimizer", "the same --optimizer"),
    "lr": ("the learning rate", "the same --lr; it belongs to the global batch"),
    "momentum": ("the momentum", ""),
    "nesterov": ("Nesterov's momentum", ""),
    "weight_decay": ("the weight decay", ""),
    "warmup": ("the warm-up", ""),
    "clip": ("the clipping", ""),
    "exact": ("the exactness", "the same --exact"),
    "gamma": ("the schedule (gamma)", ""),
    "seed": ("the seed", "the same --seed"),
    "settings": ("the workload's settings (--set)", ""),
    "compile": ("compilation", "--compile for all configurations, or for none"),
    "channels_last": ("channels-last", ""),
    "deterministic": ("deterministic kernels", ""),
    "device_type": ("the kind of device", "a study of its own for each kind of device"),
    "device": ("the device", "the same kind of node for all configurations"),
    "test_samples": ("the number of test samples", ""),
    "torch": ("torch's version", "one environment for all configurations"),
}
# What grows with the devices when the work of each of them is fixed.
WEAK_MAY_DIFFER = frozenset({"samples", "steps", "global_batch", "lr", "warmup"})
WHY = {
    "precision": "tensor cores make mixed precision several times faster on one GPU already",
    "autocast": "mixed precision is several times faster on one GPU already, whoever has switched it on",
    "inputs": "larger images and longer sequences are more work for each sample",
    "tf32": "TF32 makes matrix products several times faster on one GPU already",
    "global_batch": "a larger batch takes fewer steps, and often more epochs to the same accuracy",
    "samples": "a run that trains fewer samples is not faster, and counts of batches × batch size are not samples",
}

# Optimizer steps that a script's own gradient scaler may leave out without a doubt of equal work.
FEW_OVERFLOWS = 0.005


def _unequal_work(family: Family) -> Iterable[Finding]:
    weak = family.study.scaling == "weak"
    for name, (words, fix) in EQUAL.items():
        if weak and name in WEAK_MAY_DIFFER:
            continue
        said = _who_says(family, partial(_fact, name))
        if len(said) > 1:
            yield Finding(
                f"unequal-{name.replace('_', '-')}",
                Severity.ERROR,
                f"{words} differs: " + ", ".join(f"{value} with {who}" for value, who in said),
                place=name,
                why=WHY.get(name, "a speed-up compares runs that did the same work"),
                fix=fix,
            )


def _unequal_optimizer_steps(family: Family) -> Iterable[Finding]:
    """A loop counts the samples of each batch that its body got, also of those that the body has left out."""
    weak = family.study.scaling == "weak"
    runs = [run for one in family.configurations for run in one.runs]
    told = [run for run in runs if _taken(run) is not None and (run.steps or not weak)]
    if not told or (not weak and len({run.steps for run in told}) > 1):
        return  # refused as unequal-steps
    shares = [(_taken(run) or 0) / run.steps for run in told] if weak else [_taken(run) or 0 for run in told]
    least, most = min(shares), max(shares)
    # Weak scaling: a window that is accumulated by hand may be cut off at the end of each epoch.
    rounding = (
        max(run.facts.get("epochs") or 1 for run in told) / min(run.steps for run in told) if weak else 0
    )
    if most - least <= rounding:
        return
    few = (most - least) <= FEW_OVERFLOWS * most
    said = _who_says(family, _taken_in_words)
    yield Finding(
        "unequal-optimizer-steps",
        Severity.WARNING if few else Severity.ERROR,
        "the number of optimizer steps differs: " + ", ".join(f"{value} with {who}" for value, who in said),
        place="optimizer_steps",
        why="a gradient scaler leaves out a few steps after all of their work but the optimizer's; a batch that the "
        "body leaves out is not trained on"
        if few
        else "a batch that the body leaves out is counted, and takes no time; a step that updates more rarely is "
        "cheaper",
        fix="leave out the same batches, and update as often, in all configurations",
        confidence=Confidence.LIKELY if few else Confidence.SURE,
    )


def _unequal_local_batch(family: Family) -> Iterable[Finding]:
    """Weak scaling: each process has the same share of the global batch."""
    if family.study.scaling != "weak":
        return
    said = _who_says(family, _local_batch)
    if len(said) > 1:
        yield Finding(
            "unequal-local-batch",
            Severity.ERROR,
            "the batch of a process differs: " + ", ".join(f"{value} with {who}" for value, who in said),
            place="global_batch",
            why="weak scaling fixes the work of each process; a larger share uses a device better",
            fix="a global batch that grows with the processes; or a strong-scaling study: --strong",
        )


def _miscounted(family: Family) -> Iterable[Finding]:
    """Steps × global batch is more than there was to train, because last batches are short."""
    for one in family.configurations:
        for run in one.runs[:1]:
            data, epochs, batch = (run.facts.get(key) for key in ("train_samples", "epochs", "global_batch"))
            if data and epochs and batch and run.samples == run.steps * batch > data * epochs:
                yield Finding(
                    "miscounted-samples",
                    Severity.ERROR,
                    f"{family.label(one)} counts {run.samples:,} samples, steps × global batch; "
                    f"{epochs} epochs of {data:,} are {data * epochs:,}",
                    place="samples",
                    why="the last batch of an epoch is short, so that batches × batch size counts samples twice",
                    fix="sum the lengths of the batches",
                )


def _not_as_asked(family: Family) -> Iterable[Finding]:
    for one in family.configurations:
        asked = _asked_processes(one)
        apart = [run for run in one.runs if asked is not None and run.processes != asked]
        if apart:
            yield Finding(
                "other-process-count",
                Severity.ERROR,
                f"the study asked for {count_of(asked or 0)}, and {count_of(apart[0].processes)} trained together",
                place=apart[0].path or family.label(one),
                why="processes that do not know of each other train the same samples several times",
                fix="start the script through a launcher that sets RANK and WORLD_SIZE; `rankup world` shows them",
            )


def _unsteady_threads(family: Family) -> Iterable[Finding]:
    for one in family.configurations:
        threads = sorted({run.threads for run in one.runs})
        if len(threads) > 1 and one.runs[0].device_type == "cpu":
            yield Finding(
                "unsteady-threads",
                Severity.ERROR,
                f"the threads of {family.label(one)} changed between repeats: "
                + " and ".join(map(str, threads)),
                place="threads",
                why="repeats of one configuration must be the same configuration",
                fix="--threads T holds them fixed",
            )


def _unequal_threads(family: Family) -> Iterable[Finding]:
    """On CPUs a process must have the same cores everywhere, as a GPU is one GPU everywhere."""
    if family.kind == "threads" or any(
        run.device_type != "cpu" for c in family.configurations for run in c.runs
    ):
        return
    said = _who_says(family, lambda run: run.threads)
    steady = all(len({run.threads for run in one.runs}) == 1 for one in family.configurations)
    if len(said) > 1 and steady:
        yield Finding(
            "unequal-threads",
            Severity.ERROR,
            "the threads per process differ: " + ", ".join(f"{value} with {who}" for value, who in said),
            place="threads",
            why="a process with fewer threads has less CPU time; the ratio mixes both effects",
            fix="--threads T gives every process of every configuration the same",
        )


WORK: Mapping[str, Source[Family]] = {
    "unequal-work": _unequal_work,
    "unequal-optimizer-steps": _unequal_optimizer_steps,
    "unequal-local-batch": _unequal_local_batch,
    "miscounted-samples": _miscounted,
    "other-process-count": _not_as_asked,
    "unsteady-threads": _unsteady_threads,
    "unequal-threads": _unequal_threads,
}


def _fact(name: str, run: Measured) -> Any:
    """What the run says of its work under ``name``; None if it does not tell."""
    counted = {"samples": run.samples, "steps": run.steps, "device_type": run.device_type}
    return (counted[name] or None) if name in counted else run.facts.get(name)


def _taken(run: Measured) -> int | None:
    """Steps of the optimizers; None if the run does not tell."""
    return run.facts.get("optimizer_steps")


def _taken_in_words(run: Measured) -> str | None:
    taken = _taken(run)
    return None if taken is None else f"{taken:,}" + (f" in {run.steps:,} steps" if run.steps else "")


def _local_batch(run: Measured) -> float | None:
    batch = run.facts.get("global_batch")
    return None if batch is None else batch / run.processes


def _asked_processes(one: Configuration) -> int | None:
    """Processes over all nodes, as the grid asked for them."""
    for key in ("nproc", "nproc-per-node", "gpus", "gpus-per-node"):
        if key in one.asked:
            return int(one.asked[key]) * int(one.asked.get("nodes", one.runs[0].nodes))
    return None


def _who_says(family: Family, tell: Callable[[Measured], Any]) -> list[tuple[str, str]]:
    """(value, the configurations that tell it), each value once; those that tell nothing are left out."""
    said: dict[Hashable, tuple[Any, dict[str, None]]] = {}
    for one in family.configurations:
        for run in one.runs:
            value = tell(run)
            if value is not None:
                _, who = said.setdefault(repr(value), (value, {}))
                who[family.label(one)] = None
    return [(_shown(value), " and ".join(who)) for value, who in said.values()]


def _shown(value: Any) -> str:
    return f"{value:,}" if type(value) is int else f"{value:g}" if type(value) is float else str(value)
