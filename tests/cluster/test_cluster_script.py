"""Rendered scripts on a real SLURM: every launcher forms the right world, and time limits are survived."""

from __future__ import annotations

import json
import re
import sys

import pytest
from lab import Lab

from flaky import aborts_at_exit
from rankup.core.rundir import RunDir
from rankup.jobs.script import render
from rankup.spec.jobspec import JobSpec
from rankup.spec.sites import find_site

pytestmark = pytest.mark.cluster

# What a rank knows, that it can reduce with all others, and that rankup takes it for the same.
MEETS = """
import json, os, socket, sys, time
import torch, torch.distributed as dist
from rankup.world import World
world = World.detect()
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank())])
dist.all_reduce(total)
print("met " + json.dumps({
    "rank": dist.get_rank(), "size": dist.get_world_size(), "sum": total.item(), "host": socket.gethostname(),
    "local": os.environ["LOCAL_RANK"], "cuda": os.environ.get("CUDA_VISIBLE_DEVICES"),
    "world": [world.launcher, world.rank, world.world_size, world.node_rank, world.num_nodes],
    "omp": os.environ.get("OMP_NUM_THREADS"), "args": sys.argv[1:],
}), flush=True)
time.sleep(0.5)  # see examples/ddp_plain.py
dist.destroy_process_group()
"""
AWKWARD = ("it's", "a b", "$HOME", "*")


def job(cluster: Lab, command: tuple[str, ...], **values: object) -> JobSpec:
    return JobSpec.model_validate(
        {"command": command, "name": "job", "folder": cluster.shared, "python": sys.executable, **values}
    )


def submit(cluster: Lab, spec: JobSpec) -> tuple[RunDir, str]:
    """Render and submit; returns the run directory and the scheduler's id."""
    run = RunDir.create(cluster.shared / "runs", spec.name)
    path = run.path / "job.sh"
    path.write_text(render(spec, find_site("slurm", {}, cluster.shared), run.path))
    done = cluster.run("head", ["sbatch", "--parsable", path])
    assert done.code == 0, done.err
    return run, done.out.strip()


# Not by lines: those of two ranks may come in pieces.
def met(log: str) -> list[dict[str, object]]:
    said = [json.loads(text) for text in re.findall(r"met (\{[^{}]*\})", log)]
    return sorted(said, key=lambda rank: rank["rank"])


@aborts_at_exit
@pytest.mark.parametrize("launcher", ["torchrun", "srun", "mpirun"])
def test_two_nodes_of_two_ranks_meet_and_reduce_under_every_launcher(cluster: Lab, launcher: str):
    (cluster.shared / "meets.py").write_text(MEETS)
    # Open MPI binds to real cores, of which this machine may have fewer than its pretended nodes.
    cores = {"env": {"OMP_NUM_THREADS": "2"}} if launcher == "mpirun" else {"cpus_per_task": 2}
    spec = job(
        cluster,
        ("meets.py", *AWKWARD),
        nodes=2,
        nproc_per_node=2,
        gpus_per_node=2,
        launcher=launcher,
        **cores,
    )
    run, number = submit(cluster, spec)
    state = cluster.wait_for(number, timeout=120)
    log = (run.logs / "job.log").read_text()
    assert state == "COMPLETED", log
    ranks = met(log)
    assert [(r["rank"], r["size"], r["sum"]) for r in ranks] == [(i, 4, 6.0) for i in range(4)], log
    assert [(r["host"], r["local"]) for r in ranks] == [
        ("node1", "0"), ("node1", "1"), ("node2", "0"), ("node2", "1")
    ]  # fmt: skip
    formed = {"mpirun": "openmpi"}.get(launcher, launcher)
    assert [r["world"] for r in ranks] == [[formed, i, 4, i // 2, 2] for i in range(4)]
    assert all(r["args"] == list(AWKWARD) for r in ranks)
    assert all(r["cuda"] == "0,1" for r in ranks)  # all of the node's, for every rank
    assert all(r["omp"] == "2" for r in ranks)
    assert run.outcome() == "done"
    assert (run.path / "exit_code").read_text() == "0\n"


# Trains by hand, saves when asked, and goes on from there: the least that a script must do to join in.
SURVIVES = """
import os, sys, time
from pathlib import Path
import torch, rankup
run = rankup.init(seed=4, precision="fp64")
model, opt, _ = run.prepare(torch.nn.Linear(3, 1), lambda p: torch.optim.Adam(p, lr=.05),
                            rankup.ResidentData(torch.zeros(4, 3)), global_batch=4)
saved, step = Path(sys.argv[1]), 0
if saved.exists():
    state = torch.load(saved, weights_only=True)
    model.load_state_dict(state["model"]); opt.load_state_dict(state["opt"]); step = state["step"]
print(f"begins at {step}", flush=True)
while step < int(sys.argv[2]):
    x = torch.full((2, 3), float(step), dtype=torch.float64) / 100 + run.world.rank
    loss = (model(x) - step).square().mean(); loss.backward(); opt.step(); opt.zero_grad()
    step += 1
    stop = rankup.should_stop()
    while str(step) in sys.argv[3:] and not stop:  # until asked
        time.sleep(0.05)
        stop = rankup.should_stop()
    if stop:
        if run.world.rank == 0:
            torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "step": step}, saved)
        print(f"saved at {step}", flush=True)
        sys.exit()
if run.world.rank == 0:
    print("weights", *(f"{w:.12f}" for p in model.parameters() for w in p.detach().flatten().tolist()), flush=True)
"""


def weights(log: str) -> list[str]:
    return re.findall(r"weights((?: -?\d+\.\d{12})+)", log)


@pytest.mark.timeout(420)
def test_a_time_limit_that_hits_twice_leaves_three_attempts_one_log_and_the_same_weights(cluster: Lab):
    (cluster.shared / "survives.py").write_text(SURVIVES)
    saved = cluster.shared / "survives.pt"
    # SLURM knows no time below 60 s. At steps 20 and 40 the script waits for the request, which comes after 25 s.
    shape = {"nodes": 2, "nproc_per_node": 2, "launcher": "torchrun", "cpus_per_task": 1}
    spec = job(cluster, ("survives.py", str(saved), "50", "20", "40"), time=60, stop_before=35, **shape)
    run, number = submit(cluster, spec)
    state = cluster.wait_for(number, timeout=400)
    log = (run.logs / "job.log").read_text()
    assert state == "COMPLETED", log
    attempts = re.findall(r"^==== rankup: attempt (\d)", log, re.MULTILINE)
    assert attempts == [str(n + 1) for n in range(max(3, len(attempts)))], (
        log
    )  # on a slow machine it needs more
    begins = re.findall(r"\[rank 3\] begins at (\d+)", log)
    assert begins == ["0", *re.findall(r"\[rank 3\] saved at (\d+)", log)]
    assert (run.path / "requeues").read_text() == f"{len(attempts) - 1}\n"
    whole, other = submit(cluster, job(cluster, ("survives.py", f"{saved}.none", "50"), **shape))
    assert cluster.wait_for(other, timeout=120) == "COMPLETED", (whole.logs / "job.log").read_text()
    assert weights(log) == weights((whole.logs / "job.log").read_text()) != []
