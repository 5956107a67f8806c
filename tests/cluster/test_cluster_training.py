"""A three-line script trains over gloo across two nodes, under every launcher, to the same model as one process."""

from __future__ import annotations

import re

import pytest
from cluster_jobs import log, rankup, submit
from lab import Lab

pytestmark = pytest.mark.cluster

SCRIPT = """
import torch, rankup
run = rankup.init(seed=4, precision="fp64")
x = torch.arange(60.).reshape(30, 2) / 60
model, opt, data = run.prepare(torch.nn.Linear(2, 1), lambda p: torch.optim.Adam(p, lr=.05),
                               rankup.ResidentData(x, x.sum(1, keepdim=True)), global_batch=7)
for a, b in run.steps(data, epochs=3):
    loss = (model(a) - b).square().mean(); loss.backward(); opt.step(); opt.zero_grad()
weights = [w for p in model.parameters() for w in p.detach().flatten().tolist()]
said = "trained", run.world.launcher, run.world.rank, run.world.world_size, *(f"{w:.9f}" for w in weights)
print(" ".join(map(str, said)), flush=True)  # one write: four ranks share the file, and Python may be unbuffered
"""

# The nodes have four processors, and nobody says how the two ranks of a node share them: two threads each.
AGENT = (
    "exec PYTHON -m torch.distributed.run --nnodes=2 --node_rank=$SLURM_NODEID --nproc_per_node=2"
    " --master_addr=$MASTER_ADDR --master_port=18001 train.py"
)
BATCH = {
    "srun": "srun --ntasks-per-node=2 PYTHON train.py",
    "openmpi": "export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\n"
    "mpirun -np 4 --bind-to none -x MASTER_ADDR PYTHON train.py",
    "torchrun": "export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\n"
    f"srun --ntasks=2 --ntasks-per-node=1 bash -c '{AGENT}'",
}


# Not by lines: torch's warnings go to the same file, and in pieces.
LINE = re.compile(r"trained (\w+) (\d+) (\d+)" + r" (-?\d+\.\d{9})" * 3)


def trained(text: str) -> list[tuple[str, ...]]:
    """What the ranks printed, in the order of their ranks: launcher, rank, world size, weights."""
    return sorted(LINE.findall(text))


@pytest.fixture(scope="module")
def weights_of_one_process(cluster: Lab) -> tuple[str, ...]:
    (cluster.shared / "train.py").write_text(SCRIPT)
    done = cluster.run("node1", [cluster.python, "train.py"], timeout=120)
    ((_, _, size, *weights),) = trained(done.out)
    assert size == "1"
    return tuple(weights)


@pytest.mark.parametrize("launcher", BATCH)
def test_two_nodes_of_two_ranks_train_the_model_of_one_process(
    cluster: Lab, weights_of_one_process: tuple[str, ...], launcher: str
):
    text = BATCH[launcher].replace("PYTHON", cluster.python)
    job = cluster.sbatch(f"#!/bin/bash\n{text}\n", "-N2", "--ntasks-per-node=2")
    assert cluster.wait(job, timeout=150) == "COMPLETED", job.log.read_text()
    ranks = trained(job.log.read_text())
    assert [rank[:3] for rank in ranks] == [(launcher, str(r), "4") for r in range(4)], job.log.read_text()
    for rank in ranks:
        assert rank[3:] == weights_of_one_process


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
    if begin == 0 and str(run.global_step) == sys.argv[1] and run.world.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()
print(f"rank {run.world.rank} began at {begin} and has {digest}", flush=True)
"""


def test_a_job_of_four_ranks_that_was_killed_goes_on_to_the_same_bits(cluster: Lab):
    (cluster.shared / "killed.py").write_text(KILLED)
    shape = ("--nodes", "2", "--nproc-per-node", "2", "--cpus-per-task", "1")
    whole = submit(cluster, "--name", "whole", *shape, "killed.py", "never")
    killed = submit(cluster, "--name", "killed", *shape, "killed.py", "11")
    assert rankup(cluster, "logs", "-f", whole["run"], timeout=120).code == 0, log(whole)
    assert rankup(cluster, "logs", "-f", killed["run"], timeout=120).code != 0
    assert "began at" not in log(killed)
    done = rankup(cluster, "resume", killed["run"])
    assert done.code == 0, done.out + done.err
    assert rankup(cluster, "logs", "-f", killed["run"], timeout=120).code == 0, log(killed)
    began, digests = zip(*re.findall(r"began at (\d+) and has (\w+)", log(killed)), strict=True)
    assert set(began) <= {"6", "9"}  # the newest snapshot that was durable
    assert set(digests) == set(re.findall(r"began at 0 and has (\w+)", log(whole)))
    assert len(digests) == 4 and len(set(digests)) == 1
