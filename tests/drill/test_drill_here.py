"""``rankup drill --here``: the size of its cluster comes from the job's directives, and refusals have names."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankup.drill.copied_job import JobScript
from rankup.drill.here import cluster_here, lab_for
from rankup.drill.lab.lab import Lab
from rankup.drill.lab.pbs import PbsLab
from rankup.drill.lab.slurm import SlurmLab
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
    assert lab.queues == ["accel", "gpu-large"]
    assert lab._features == ["a100", "ib", "rack2"]


@pytest.mark.parametrize(
    ("directives", "nodes", "cpus", "gpus"),
    [
        (["-l select=2:ncpus=8:ngpus=4:mpiprocs=4", "-l place=scatter"], 2, 8, 4),
        (["-l select=1:ncpus=2+3:ncpus=16"], 4, 16, 0),
        (["-l select=3:ncpus=2:ngpus=1", "-l place=pack"], 3, 6, 3),
        (["-l nodes=2:ppn=12"], 2, 12, 0),
        (["-l walltime=10:00"], 1, 1, 0),
    ],
)
def test_the_nodes_of_its_pbs_have_what_the_chunks_ask_for(directives, nodes, cpus, gpus):
    lab = lab_for(job(*directives, scheduler="PBS"), spare=False)
    assert (lab.kind, len(lab.nodes), lab.cpus, lab.gpus) == ("pbs", nodes, cpus, gpus)


def test_its_pbs_has_the_queue_and_knows_the_resources_that_the_script_names():
    lab = lab_for(
        job("-q gpu@server", "-l select=1:gpu_type=A100:ncpus=4", "-l storage=home", scheduler="PBS"),
        spare=False,
    )
    assert lab.queues == ["gpu"]
    assert {"gpu_type", "storage"} <= {*lab._resources}


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (job("--nodes=2", folder="/tmp/mine"), "folder-not-shared"),
        (job("-l select=2", scheduler="PBS", folder="/tmp/mine"), "folder-not-shared"),
        (job("--nodes=40"), "too-many-nodes"),
        (job("--nodes=2", "hetjob", "--nodes=1"), "heterogeneous-job"),
    ],
)
def test_what_it_refuses_has_a_name(monkeypatch: pytest.MonkeyPatch, script, code):
    monkeypatch.setattr(Lab, "why_not", classmethod(lambda lab: ""))
    with pytest.raises(RankupError) as refused, cluster_here(script, "", spare=True, says=print):
        pass
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("scheduler", "directive", "missing", "code"),
    [
        ("SBATCH", "--nodes=2", "slurmd", "no-slurm-here"),
        ("PBS", "-l select=2", "an OpenPBS in", "no-pbs-here"),
    ],
)
def test_where_there_can_be_neither_a_real_cluster_nor_a_pretended_one_it_says_why(
    monkeypatch: pytest.MonkeyPatch, scheduler, directive, missing, code
):
    for lab in (SlurmLab, PbsLab):
        monkeypatch.setattr(lab, "path", "")  # nothing is installed
    monkeypatch.setattr("rankup.rehearse.sandbox.available", lambda: "user namespaces: not permitted")
    script = job(directive, scheduler=scheduler)
    with pytest.raises(RankupError) as refused, cluster_here(script, "", spare=True, says=print):
        pass
    assert (refused.value.code, "without --here" in refused.value.hint) == (code, True)
    assert missing in refused.value.context and "not permitted" in refused.value.context
