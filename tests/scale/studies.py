"""Runs as they would have recorded themselves, for tests of what is concluded from them."""

from __future__ import annotations

from typing import Any

from rankup.core.records import RecordWriter
from rankup.core.rundir import RunDir
from rankup.scale import results
from rankup.scale.results import Configuration, StudyResults


def leave_records(
    run: RunDir,
    processes: int = 1,
    seconds: float = 10.0,
    *,
    samples: int = 1437,
    ends: bool = True,
    parts: dict[str, float] | None = None,
    **facts: Any,
) -> None:
    """What a script with ``run.steps`` leaves in its run directory; without ``ends`` it was killed."""
    facts = {
        "world_size": processes,
        "nodes": 1,
        "threads": 1,
        "device_type": "cpu",
        "global_batch": 64,
        **facts,
    }
    facts.setdefault("strategy", "none" if processes == 1 else "ddp")
    with RecordWriter(run.records / "steps.jsonl") as records:
        records.write("begin", facts=facts, global_step=0)
        if parts is not None:
            records.write("breakdown", parts=parts)
        if ends:
            records.write(
                "end",
                seconds=seconds + 1,
                samples=samples + 64,
                steps=23,
                warm_seconds=seconds,
                warm_samples=samples,
            )


def measured(processes: int, seconds: float = 10.0, *, repeat: int = 1, **given: Any) -> results.Measured:
    """One run of the new types, on a CPU with one thread per process; ``given`` replaces fields or facts."""
    fields = {
        "samples": 1437,
        "steps": 23,
        "nodes": 1,
        "threads": 1,
        "strategy": "none" if processes == 1 else "ddp",
        "device_type": "cpu",
        "accuracy": 0.95,
    }
    facts = {
        "workload": "mnist-cnn",
        "data": "digits",
        "epochs": 1,
        "global_batch": 64,
        "precision": "fp32",
        "tf32": False,
        "optimizer": "adam",
        "lr": 0.001,
        "seed": 0,
        "test_samples": 360,
        "torch": "2.13.0",
    }
    for name in fields.keys() & given.keys():
        fields[name] = given.pop(name)
    if given.pop("untold", False):
        facts = {}
    return results.Measured(repeat, seconds, processes=processes, facts={**facts, **given}, **fields)


def configuration(processes: int, *seconds: float, asked: dict | None = None, **given: Any) -> Configuration:
    """A run for each of ``seconds``."""
    runs = [measured(processes, s, repeat=i, **given) for i, s in enumerate(seconds or (10.0,) * 3, 1)]
    return Configuration({"nproc": processes} if asked is None else asked, runs)


def study(*configurations: Configuration, **fields: Any) -> StudyResults:
    """On a quiet machine of eight CPUs."""
    machine = {"hostname": "node1", "cpu_count": 8, "cpus": list(range(8))}
    given = {"scaling": "strong", "machine": machine, "load_before": 0.1, **fields}
    return StudyResults("mnist-cnn", configurations=configurations, repeats=3, **given)
