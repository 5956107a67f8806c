"""A queue of PBS refuses a job, and qsub does not say why: the queue's own limits do."""

from __future__ import annotations

from pathlib import Path

from rankup.schedulers.pbs.queue_range import out_of_range, range_command
from rankup.spec.jobspec import JobSpec

QUEUE = """Queue: gpu
    queue_type = Execution
    resources_max.ncpus = 64
    resources_max.ngpus = 8
    resources_max.walltime = 24:00:00
    resources_min.mem = 64gb
    resources_min.nodect = 2
    resources_max.place = pack
"""


def spec(**values: object) -> JobSpec:
    return JobSpec(name="a", folder=Path("/"), command=("train.py",), queue="gpu", **values)  # type: ignore[arg-type]


def test_each_request_outside_of_the_queues_range_is_named_with_its_flag():
    job = spec(nodes=1, gpus_per_node=16, cpus_per_task=4, time=172800, mem=32 * 1024)
    assert range_command(job) == ["qstat", "-Qf", "gpu"]
    assert out_of_range(QUEUE, job) == [
        "--nodes 1 × --gpus-per-node 16: 16 is more than 8 (resources_max.ngpus)",
        "--time: 48:00:00 is more than 24:00:00 (resources_max.walltime)",
        "--nodes 1 × --mem: 32G is less than 64G (resources_min.mem)",
        "--nodes: 1 is less than 2 (resources_min.nodect)",
    ]


def test_what_the_job_does_not_ask_for_is_not_compared():
    assert out_of_range(QUEUE, spec(nodes=2)) == []
