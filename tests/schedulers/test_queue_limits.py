"""What no queue ever grants, from what sinfo and pbsnodes print."""

from __future__ import annotations

import pytest

from rankup.core.shell import Completed
from rankup.schedulers.base import scheduler_named
from rankup.schedulers.queue_limits import CODE
from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec

SINFO = """\
main*|3|4|4000|gpu:2|infinite|1-infinite
short|2|4|4000|gpu:2|1:00:00|1-2
one|3|4|4000|gpu:2|2:00:00|1
mixed|2|64|256000|(null)|1-00:00:00|1-infinite
mixed|1|8|1|gpu:a100:4|1-00:00:00|1-infinite
"""
# Two vnodes of one host, one of another, and a natural vnode that has no cores of its own.
PBSNODES = """\
a
     resources_available.host = a
     resources_available.mem = 0b
     resources_available.ncpus = 0

a[0]
     resources_available.host = a
     resources_available.mem = 4gb
     resources_available.ncpus = 4
     resources_available.ngpus = 1

a[1]
     resources_available.host = a
     resources_available.mem = 4gb
     resources_available.ncpus = 4
     resources_available.ngpus = 1

b
     resources_available.ncpus = 8
"""


def found(name, answer, *, env=None, site=None, code=0, **values):
    scheduler = scheduler_named(name)
    job = {"command": ("true",), "name": "job", "folder": "/", "launcher": "torchrun"}
    spec = JobSpec.model_validate({**job, **values})
    site = site or Site(name=name, scheduler=name)
    if not scheduler.limits_command(spec, site, env or {}):
        return None
    return [f.message for f in scheduler.read_limits(Completed(code, answer, ""), spec, site, env or {})]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"queue": "short", "time": "61m"}, "the job has --time 01:01:00, and partition short allows 01:00:00"),
        ({"queue": "short", "nodes": 3}, "the job needs 3 nodes, and partition short has 2"),
        ({"queue": "one", "nodes": 2}, "the job needs 2 nodes, and partition one grants at most 1 to a job"),
        ({"cpus_per_task": 3, "nproc_per_node": 2}, "needs 6 cores on each of its nodes (1), and partition main has"),
        ({"mem": "4001M"}, "needs 1 core, 4001M of memory on each"),
        ({"gpus_per_node": 3}, "needs 1 core, 3 GPUs on each"),
        # Each size exists, and not together; and only one node has the GPUs.
        ({"queue": "mixed", "gpus_per_node": 1, "cpus_per_task": 9}, "has no node with that (of 3)"),
        ({"queue": "mixed", "gpus_per_node": 1, "nodes": 2}, "has 1 node with that (of 3)"),
        ({"queue": "short,one", "time": "9h"}, "partition short allows"),
    ],
)  # fmt: skip
def test_a_job_that_no_partition_ever_starts_is_found(values, message):
    [said] = found("slurm", SINFO, **values)
    assert message in said


@pytest.mark.parametrize(
    "values",
    [
        {"time": "900h", "nodes": 3, "cpus_per_task": 4, "mem": "4000M", "gpus_per_node": 2},
        {"queue": "short", "time": "1h", "nodes": 2},
        {"queue": "short,main", "time": "900h"},
        {"queue": "mixed", "gpus_per_node": 4, "mem": "500G"},  # that node's memory is not configured
        {"queue": "mixed", "nodes": 3},
        {"queue": "nobody-knows", "nodes": 99},  # sbatch says what is wrong
    ],
)
def test_a_job_that_may_start_some_day_is_not_blamed(values):
    assert found("slurm", SINFO, **values) == []


def test_a_partition_is_not_asked_where_it_does_not_decide():
    job = {"queue": "short", "time": "900h"}
    assert (
        found("slurm", SINFO, **job, directives=("--qos=long",)) is None
    )  # which may exceed the partition's limit
    assert found("slurm", SINFO, **job, directives=("-A x -N2",)) is None
    assert found("slurm", SINFO, **job, directives=("--comment='x",)) is None
    assert found("slurm", SINFO, **job, env={"SBATCH_QOS": "long"}) is None
    assert found("slurm", SINFO, **job, directives=("--comment=x",))
    assert found("slurm", SINFO, time="900h", env={"SBATCH_PARTITION": "short"})


@pytest.mark.parametrize("answer", ["", "garbage\n", "main*|x|4|1|gpu:2|infinite|1\n"])
def test_an_answer_that_does_not_tell_is_no_finding(answer):
    assert found("slurm", answer, nodes=99) == []
    assert found("slurm", SINFO, nodes=99, code=1) == []
    assert found("pbs", answer, nodes=99) == []


def test_a_pbs_with_fewer_hosts_than_a_job_needs_would_keep_it_for_ever():
    assert found("pbs", PBSNODES, nodes=3) == ["the job needs 3 nodes, and the cluster has 2"]
    assert found("pbs", PBSNODES, nodes=2, gpus_per_node=2) == [
        "the job needs 1 core, 2 GPUs on each of its nodes (2), and the cluster has 1 node with that (of 2)"
    ]
    assert found("pbs", PBSNODES, gpus_per_node=2, cpus_per_task=8, mem="8G") == []
    assert (
        found("pbs", PBSNODES.replace("ngpus", "gpu_id"), nodes=2, gpus_per_node=9) == []
    )  # called otherwise here


def test_pbs_is_not_asked_where_its_hosts_do_not_decide():
    free = Site.model_validate({"name": "x", "scheduler": "pbs", "pbs": {"place": "free"}})
    assert found("pbs", PBSNODES, nodes=9, site=free) == []  # several chunks share a host
    assert found("pbs", PBSNODES, nodes=9, directives=("-l x=1",)) is None
    assert found("pbs", PBSNODES, nodes=9, queue="q@other") is None


def test_the_code_is_one_that_ignore_takes():
    from rankup.cli.submitted_job import ignored_codes

    assert ignored_codes([CODE]) == (CODE,)
