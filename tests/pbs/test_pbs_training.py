"""Trainings on several nodes of a real PBS: a killed rank, a resume, and the same bits. `make test` has it on SLURM."""

from __future__ import annotations

import re

import pytest
from pbs_jobs import ended, log, rankup, submit
from pbs_lab import PbsLab

pytestmark = [pytest.mark.pbs, pytest.mark.slow, pytest.mark.campaign, pytest.mark.timeout(600)]

# In fp32 a sum over more than two ranks depends on its order, and so on how DDP lays out its buckets.
KILLED = """
import hashlib, os, signal, sys, torch, rankup
run = rankup.init(seed=4, snapshots=rankup.Snapshots(every="3 steps"))
x = torch.randn(120, 20, generator=torch.Generator().manual_seed(1))
net = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(64, 5))
model, opt, data = run.prepare(net, lambda p: torch.optim.SGD(p, lr=.1, momentum=.9),
                               rankup.ResidentData(x, (x @ torch.ones(20, 5)).sin()), global_batch=17)
begin = None
run.forget("begin")  # it is for what is printed alone
for a, b in run.steps(data, epochs=3):
    begin = run.global_step if begin is None else begin
    loss = (model(a) - b).square().mean(); loss.backward(); opt.step(); opt.zero_grad()
    if begin == 0 and run.global_step == int(sys.argv[1]) and run.world.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()
print(f"rank {run.world.rank} of {run.world.world_size} began at {begin} and has {digest}", flush=True)
"""


@pytest.mark.parametrize(("nodes", "nproc"), [(2, 2), (3, 1)])
def test_a_job_of_which_a_rank_was_killed_goes_on_to_the_same_bits(pbs: PbsLab, nodes: int, nproc: int):
    pbs.write("killed.py", KILLED)
    world = nodes * nproc
    shape = ("--nodes", str(nodes), "--nproc-per-node", str(nproc), "--cpus-per-task", "1")
    whole = submit(pbs, "--name", f"whole{world}", *shape, "killed.py", "-1")
    killed = submit(pbs, "--name", f"killed{world}", *shape, "killed.py", "11")
    assert ended(pbs, whole).code == 0, log(whole)
    assert ended(pbs, killed).code != 0, log(killed)
    assert "began at" not in log(killed)
    done = rankup(pbs, "resume", killed["run"])
    assert done.code == 0, done.out + done.err
    assert ended(pbs, killed).code == 0, log(killed)
    began, digests = zip(*re.findall(rf"of {world} began at (\d+) and has (\w+)", log(killed)), strict=True)
    assert set(began) <= {"6", "9"}  # the newest snapshot that was durable
    assert set(digests) == set(re.findall(rf"of {world} began at 0 and has (\w+)", log(whole)))
    assert len(digests) == world and len(set(digests)) == 1
