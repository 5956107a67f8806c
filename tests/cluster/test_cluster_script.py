"""Rendered scripts on a real SLURM: every launcher forms the right world, and time limits are survived."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

import pytest
from lab import Lab

from flaky import aborts_at_exit
from rankup.core.rundir import RunDir
from rankup.script.render import render
from rankup.sites.lookup import find_site
from rankup.spec.jobspec import JobSpec

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
        {"command": command, "name": "job", "folder": cluster.shared, "python": cluster.python, **values}
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


SAMPLED = """
import os, signal, sys, time
from pathlib import Path
records = Path(os.environ["RANKUP_RUN_DIR"], "records")
while len(list(records.glob("utilization-*.jsonl"))) < 2 or not all(map(os.path.getsize, records.iterdir())):
    time.sleep(0.1)
time.sleep(2 * int(os.environ["RANK"]))
if sys.argv[1] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
"""


# A kill under srun: test_cluster_sampler.py.
@pytest.mark.parametrize(
    ("launcher", "how"),
    [
        ("torchrun", "kill"),
        *(pytest.param(*each, marks=pytest.mark.campaign) for each in (("torchrun", "end"), ("srun", "end"))),
    ],
)
def test_each_node_is_sampled_and_no_sampler_outlives_the_job(cluster: Lab, launcher: str, how: str):
    (cluster.shared / "sampled.py").write_text(SAMPLED)
    spec = job(cluster, ("sampled.py", how), nodes=2, nproc_per_node=1, launcher=launcher)
    run, number = submit(cluster, spec)
    cluster.wait_for(number, timeout=120)
    files = sorted(path.name for path in run.records.glob("utilization-*.jsonl"))
    assert len(files) == 2, (files, (run.logs / "job.log").read_text())
    cluster.until(lambda: not _samplers(run), timeout=240)


def _samplers(run: RunDir) -> list[list[str]]:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(path.read_text().split("\0"))
    return [words for words in lines if str(run.path) in words and "rankup.monitor" in words]
