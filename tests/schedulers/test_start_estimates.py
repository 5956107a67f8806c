"""When a job would start. Texts marked * are recorded from SLURM 22.05; that of PBS is written after its manual."""

from __future__ import annotations

import getpass
import json
from datetime import datetime

import pytest
from scheduler_samples import SITE, job, said

from rankup.errors import RankupError
from rankup.schedulers.base import scheduler_named

SLURM, PBS, LOCAL = (scheduler_named(name) for name in ("slurm", "pbs", "local"))
STARTS = "sbatch: Job 3 to start at 2026-11-22T15:03:56 using 8 processors on nodes node[1-2] in partition main\n"  # *
AT = datetime(2026, 11, 22, 15, 3, 56).timestamp()


def test_slurm_is_asked_with_the_resources_of_the_job_and_submits_nothing():
    command = SLURM.start_command(job(nodes=2, queue="gpu", directives=("--qos=low",)), SITE)
    assert command[2:4] == ["sbatch", "--test-only"]
    assert {"--nodes=2", "--partition=gpu", "--qos=low", "--wrap=true"} <= set(command)


def test_slurm_names_the_time_on_stderr():
    assert SLURM.read_start(said(err=STARTS), job()) == AT


@pytest.mark.parametrize(
    ("code", "words", "error"),
    [
        (1, "sbatch: error: invalid partition specified: nope\n"  # *
            "allocation failure: Invalid partition name specified", "unknown-queue"),
        (124, "sbatch: no answer within 15 s", "scheduler-unreachable"),
        (127, "env: 'sbatch': No such file or directory", "scheduler-missing"),
        (0, "sbatch: something else", "start-unknown"),
    ],
)  # fmt: skip
def test_slurm_does_not_tell(code, words, error):
    with pytest.raises(RankupError) as caught:
        SLURM.read_start(said(code=code, err=words), job())
    assert caught.value.code == error


def queued(nodes=2, start="Sun Nov 22 15:03:56 2026", **more):
    values = {
        "Job_Owner": f"{getpass.getuser()}@head",
        "job_state": "Q",
        "queue": "workq",
        "Resource_List": {"nodect": nodes},
        **({"estimated": {"start_time": start}} if start else {}),
        **more,
    }
    return said(json.dumps({"Jobs": {"12.head": values}}))


@pytest.mark.parametrize("start", ["Sun Nov 22 15:03:56 2026", str(int(AT))])
def test_pbs_tells_the_start_of_ones_own_queued_job_of_that_size(start):
    assert PBS.start_command(job(nodes=2), SITE)[:2] == ["qstat", "-f"]
    assert PBS.read_start(queued(start=start), job(nodes=2)) == AT


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (queued(nodes=4), "none there on 2 nodes"),
        (queued(job_state="R"), "none there on 2 nodes"),
        (queued(Job_Owner="else@head"), "none there on 2 nodes"),
        (queued(start=""), "turned off"),
        (queued(start="soon"), "turned off"),
    ],
)
def test_pbs_does_not_tell(answer, why):
    with pytest.raises(RankupError) as caught:
        PBS.read_start(answer, job(nodes=2))
    assert caught.value.code == "start-unknown" and why in caught.value.message


def test_without_a_scheduler_there_is_no_queue():
    with pytest.raises(RankupError) as caught:
        LOCAL.start_command(job(), SITE)
    assert caught.value.code == "no-queue"
