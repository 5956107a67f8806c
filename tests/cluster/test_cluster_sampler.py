"""The samplers of a job on a real SLURM: none is left, whatever is killed, and their records can be read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cluster_jobs import submit
from lab import Lab

from rankup.core.records import read_records
from rankup.core.rundir import RunDir
from rankup.monitor.reader import RunReader
from rankup.scale.report.run_records import read_run

pytestmark = pytest.mark.cluster

WAITS = "import time\nprint('rank waits', flush=True)\ntime.sleep(600)\n"
# A signal ($1) for the processes of this host that match $0.
SIGNAL = 'for pid in $(pgrep --full -- "$0"); do [ "$pid" = $$ ] || kill -s "$1" "$pid"; done'


def started(cluster: Lab, launcher: str) -> dict[str, str]:
    """A job of two nodes on each of which a sampler has written; its ``job`` and its directory ``run``."""
    (cluster.shared / "waits.py").write_text(WAITS)
    answer = submit(
        cluster, "--name", "killed", "--nodes", "2", "--nproc-per-node", "2", "--launcher", launcher,
        "--max-requeues", "0", "--python", sys.executable, "waits.py",
    )  # fmt: skip
    records = [Path(answer["run"]) / "records" / f"utilization-{node}.jsonl" for node in cluster.nodes]
    cluster.until(lambda: all(path.exists() and len(read_records(path)) >= 2 for path in records), 120)
    assert len(samplers(cluster, answer["run"])) >= 2
    return answer


def samplers(cluster: Lab, run: str) -> list[str]:
    """The command lines of the samplers of ``run`` that live."""
    lines = [
        line for node in cluster.nodes for line in cluster.run(node, ["ps", "-eo", "args"]).out.splitlines()
    ]
    return [line for line in lines if run in line and ("rankup.monitor" in line or "sampler.sh" in line)]


def signal(cluster: Lab, name: str, pattern: str) -> None:
    for node in cluster.nodes:
        cluster.run(node, ["bash", "-c", SIGNAL, pattern, name])


def ended_and_readable(cluster: Lab, run: str) -> None:
    cluster.until(lambda: not samplers(cluster, run), 120)
    # A line that was cut is left out, and the others are there.
    assert [host.host for host in read_run(Path(run), "killed").hosts] == list(cluster.nodes)
    reader = RunReader(RunDir(Path(run)))
    reader.update()
    assert sorted(reader.run.nodes) == list(cluster.nodes)


# Without torchrun in `make test`: SLURM kills all the same, and agents import torch.
@pytest.mark.parametrize("launcher", ["srun", pytest.param("torchrun", marks=pytest.mark.campaign)])
def test_no_sampler_is_left_when_slurm_kills_all_processes_of_a_job(cluster: Lab, launcher: str):
    answer = started(cluster, launcher)
    done = cluster.run("head", ["scancel", "--signal=KILL", "--full", answer["job"]])
    assert done.code == 0, done.err
    ended_and_readable(cluster, answer["run"])
    cluster.wait_for(answer["job"])


def test_no_sampler_is_left_when_the_shell_of_the_job_is_killed(cluster: Lab):
    answer = started(cluster, "srun")
    signal(cluster, "KILL", f"/job0*{answer['job']}/slurm_script")
    ended_and_readable(cluster, answer["run"])
    cluster.wait_for(answer["job"])


@pytest.mark.slow
def test_a_sampler_ends_by_itself_when_slurm_and_the_ranks_are_killed_and_nobody_cleans_up(own_cluster: Lab):
    answer = started(own_cluster, "srun")
    job = answer["job"]
    signal(own_cluster, "STOP", rf"slurmstepd: \[{job}\.")  # it would kill the samplers itself
    rest = rf"slurmstepd: \[{job}\.|/job0*{job}/slurm_script|^srun |{answer['run']}/rank.sh|waits.py"
    signal(own_cluster, "KILL", rest)
    ended_and_readable(own_cluster, answer["run"])
