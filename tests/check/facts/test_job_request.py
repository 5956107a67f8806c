"""Directives in every spelling become the same numbers."""

from __future__ import annotations

import pytest

from rankup.check.document import Document
from rankup.check.facts.job_reader import read_job


def request_of(*directives, keyword="SBATCH"):
    text = "#!/bin/bash\n" + "".join(f"#{keyword} {directive}\n" for directive in directives) + "true\n"
    return read_job(Document("job.sh", text)).request


@pytest.mark.parametrize(
    "directives",
    [
        ("--nodes=2", "--ntasks-per-node=4", "--gpus-per-node=4"),
        ("-N 2", "-n 8", "--gres=gpu:4"),
        ("-N2 -n8 --gres=gpu:a100:4",),
        ("--nodes 2 --ntasks 8", "--gpus 8"),
        ("--nodes=2 # two", "--tasks-per-node=4", "--gpus-per-task=1"),
        ("--nodes=9", "--nodes=2", "--ntasks-per-node=4", "--gpus-per-node=h100:4"),
        ("--ntasks=8", "--ntasks-per-node=4", "--gres=gpu:a100_80gb:4,tmp:10G"),
        ('--nodes="2"', "--ntasks-per-n=4", "--gpus-per-node='4'"),
    ],
)
def test_spellings_of_slurm(directives):
    request = request_of(*directives)
    assert (request.scheduler, request.nodes, request.tasks, request.tasks_per_node, request.gpus_per_node) == (
        "slurm", 2, 8, 4, 4,
    )  # fmt: skip


@pytest.mark.parametrize(
    "directives",
    [
        ("-l select=2:ncpus=32:ngpus=4:mpiprocs=4",),
        ("-l select=2:ngpus=4:mpiprocs=4:ncpus=32,walltime=1:00:00",),
        ("-lselect=2:ncpus=32:mpiprocs=4:ngpus=4", "-l place=scatter"),
    ],
)
def test_spellings_of_pbs(directives):
    request = request_of(*directives, keyword="PBS")
    assert (request.scheduler, request.nodes, request.tasks, request.gpus_per_node) == ("pbs", 2, 8, 4)
    assert request.cpus_per_task == 32


def test_torque():
    request = request_of("-l nodes=2:ppn=8:gpus=4,walltime=1:00:00", keyword="PBS")
    assert (request.scheduler, request.nodes, request.lines_per_node, request.gpus_per_node) == (
        "torque",
        2,
        8,
        4,
    )


def test_two_kinds_of_chunks_have_no_number_per_node():
    request = request_of("-l select=1:ncpus=8:ngpus=2:mpiprocs=2+3:ncpus=8:mpiprocs=1", keyword="PBS")
    assert (request.nodes, request.gpus_per_node, request.tasks) == (4, None, None)
    assert request.asks_for_gpus


@pytest.mark.parametrize(
    "directives",
    [
        ("--nodes=<nodes>",),
        ("--nodes={{ nodes }}",),
        ("--nodes=2-4",),
        ("--nodes=$N",),
        ("--ntasks=8",),
        ("--nodes=2", "hetjob", "--nodes=1"),
        (),
    ],
)
def test_what_is_not_said_is_not_known(directives):
    assert request_of(*directives).nodes is None or request_of(*directives).heterogeneous


def test_comments_and_late_lines_are_not_read():
    text = "#!/bin/bash\n##SBATCH --nodes=8\n# SBATCH --nodes=7\n#SBATCH --nodes=2\ntrue\n#SBATCH --nodes=3\n"
    job = read_job(Document("job.sh", text))
    assert job.request.nodes == 2
    assert [job.document[line.span] for line in job.lines if line.late] == ["#SBATCH --nodes=3"]


def test_a_directive_knows_its_place():
    job = read_job(Document("job.sh", "#!/bin/bash\n#SBATCH -J x --ntasks-per-node=4 # four\n"))
    directive = job.request.by_name["ntasks-per-node"]
    assert job.document[directive.span] == "--ntasks-per-node=4"
    assert job.document[directive.value_span] == "4"


def test_lsf_is_recognised_and_nothing_is_concluded():
    request = request_of("-n 4", '-gpu "num=4"', keyword="BSUB")
    assert request.scheduler == "lsf"
    assert request.asks_for_gpus
    assert request.nodes is None
