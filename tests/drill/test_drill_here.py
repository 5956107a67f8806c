"""``rankup drill --here``: the size of its SLURM comes from the job's directives, and refusals have names."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankup.drill import here
from rankup.drill.copied_job import JobScript
from rankup.drill.here import lab_for, slurm_here
from rankup.errors import RankupError


def job(*directives: str, scheduler: str = "SBATCH", folder: str = "/home/someone") -> JobScript:
    lines = [f"#{scheduler} {each}" for each in directives]
    return JobScript(Path(folder, "job.sh"), "\n".join(["#!/bin/bash", *lines, "srun python train.py", ""]))


@pytest.mark.parametrize(
    ("directives", "nodes", "cpus", "gpus"),
    [
        (["--nodes=2", "--ntasks-per-node=4", "--cpus-per-task=3", "--gpus-per-node=4"], 2, 12, 4),
        (["-N 3", "--gres=gpu:a100:2"], 3, 1, 2),
        (["--ntasks=8", "--nodes=2", "--gpus-per-task=1"], 2, 4, 4),
        (["--time=10"], 1, 1, 0),
        (["--nodes=1", "--gpus=2", "--cpus-per-gpu=8"], 1, 16, 2),
    ],
)
def test_its_nodes_have_what_the_directives_ask_for(directives, nodes, cpus, gpus):
    lab = lab_for(job(*directives), spare=False)
    assert (len(lab.nodes), lab.cpus, lab.gpus) == (nodes, cpus, gpus)
    assert len(lab_for(job(*directives), spare=True).nodes) == 2 * nodes


@pytest.mark.parametrize(
    ("directive", "kind"),
    [
        ("--gres=gpu:a100:2", "a100"),
        ("--gres=gpu:2", ""),
        ("--gres=tmp:5,gpu:h100", "h100"),
        ("--gpus-per-node=v100:1", "v100"),
        ("--gpus-per-node=1", ""),
        ("--gpus=h200:8", "h200"),
    ],
)
def test_its_gpus_are_of_the_kind_that_is_asked_for(directive, kind):
    assert lab_for(job("--nodes=1", directive), spare=False)._gpu_type == kind


def test_it_has_the_partitions_and_features_that_the_script_names():
    lab = lab_for(job("--partition=accel,gpu-large", "--constraint=[a100&ib|rack2*2]"), spare=False)
    assert lab.partitions == ["accel", "gpu-large"]
    assert lab._features == ["a100", "ib", "rack2"]


@pytest.mark.parametrize(
    ("script", "why", "code"),
    [
        (job("-l select=2", scheduler="PBS"), "", "no-pbs-here"),
        (job("--nodes=2"), "not installed: slurmd", "no-slurm-here"),
        (job("--nodes=2", folder="/tmp/mine"), "", "folder-not-shared"),
        (job("--nodes=40"), "", "too-many-nodes"),
        (job("--nodes=2", "hetjob", "--nodes=1"), "", "heterogeneous-job"),
    ],
)
def test_what_it_refuses_has_a_name(monkeypatch: pytest.MonkeyPatch, script, why, code):
    monkeypatch.setattr(here, "why_not", lambda: why)
    monkeypatch.setattr(here, "missing_packages", lambda: ["slurmd"] if why else [])
    with pytest.raises(RankupError) as refused, slurm_here(script, "", spare=True, says=print):
        pass
    assert refused.value.code == code
    if why:
        assert refused.value.hint.startswith("apt-get install slurmd; without --here")
