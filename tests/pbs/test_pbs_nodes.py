"""Nodes of a real PBS that are lost."""

from __future__ import annotations

import pytest
from pbs_jobs import ended, log, status, submit
from pbs_lab import PbsLab

pytestmark = [pytest.mark.pbs, pytest.mark.slow, pytest.mark.timeout(900)]

# In the first attempt all ranks work on until the group is broken.
GROUP = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
print("rank", dist.get_rank(), "begun", flush=True)
first = len(open(os.environ["RANKUP_RUN_DIR"] + "/attempts").readlines()) == 1
while first:
    dist.all_reduce(torch.ones(1))
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("how", [pytest.param("crash", marks=pytest.mark.campaign), "cut_power"])
def test_a_lost_node_that_is_not_the_first_has_the_job_continued(own_pbs: PbsLab, how: str):
    own_pbs.write("group.py", GROUP)
    answer = submit(own_pbs, "--name", "lost", "--nodes", "2", "group.py", time=("--time", "30m"))
    own_pbs.until(lambda: log(answer).count("begun") == 2, 100)
    hosts = [part.partition("/")[0] for part in own_pbs.qstat(answer["job"])["exec_host"].split("+")]
    getattr(own_pbs, how)(hosts[1])
    done = ended(own_pbs, answer, timeout=400)
    assert done.code == 0, done.out + done.err
    assert f"lost a node of this job: {hosts[1]}" in done.out
    assert "requeue 1 of 10" in done.out and done.out.count("==== rankup: attempt") == 2
    assert status(own_pbs, answer)["state"] == "done"
