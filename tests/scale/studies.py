"""Runs as they would have recorded themselves, for tests of what is concluded from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rankup.scale.grid import Trial
from rankup.scale.measured import Measured

from rankup.scale import results
from rankup.scale.machine import Machine
from rankup.scale.results import Configuration, StudyResults

IDLE = Machine("node1", "Linux", "3.12.0", cpu_count=8, cpus=tuple(range(8)), load=0.1)


def run(processes: int, seconds: float = 10.0, *, repeat: int = 1, steps: int = 23, **facts: Any) -> Measured:
    """A whole run of ``processes`` with one thread each on a CPU; ``facts`` replace what its summary says."""
    summary = {
        "workload": "rankup.workloads.mnist_cnn:MnistCnn",
        "name": "mnist-cnn",
        "data": "digits",
        "epochs": 1,
        "global_batch": 64,
        "precision": "fp32",
        "optimizer": "adam",
        "lr": 0.001,
        "gamma": 0.7,
        "seed": 0,
        "settings": {},
        "world_size": processes,
        "nodes": 1,
        "device": "CPU",
        "device_type": "cpu",
        "threads": 1,
        "torch": "2.13.0",
        "train_seconds": seconds,
        "samples": 1437,
        "test_samples": 360,
        "test_accuracy": 0.95,
        **facts,
    }
    path = Path(f"runs/mnist-cnn/{processes}-{repeat}")
    return Measured(Trial(processes, repeat), summary, steps, path)


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
