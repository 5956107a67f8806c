"""A whole allocation, with srun and pbsdsh played by a few lines of bash: the nodes are addresses of this machine."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from rankup.core.rundir import RunDir
from rankup.resolve.here import resolve_here
from rankup.run import agents
from rankup.run.allocation import Allocation
from rankup_process import Started, script

pytestmark = pytest.mark.usefixtures("warm_python")

SRUN = """#!/bin/bash
echo "$@" >srun-arguments
while [ "$1" != bash ]; do shift; done
export SLURM_STEP_ID=3
SLURM_NODEID=0 "$@" & a=$!
SLURM_NODEID=1 "$@" & b=$!
echo $a $b >srun-tasks
trap 'kill -KILL $a $b' TERM # as the real one
# --kill-on-bad-exit
wait -n && wait -n && exit 0
code=$?
kill $a $b
wait
exit $code
"""
SCANCEL = """#!/bin/bash
echo "$@" >>scancel-arguments
kill -TERM $(cat srun-tasks)
"""
# As the real one: its tasks have a bare environment and another folder, what they print is PBS's, and it ends with 0
# whatever they do; at TERM it passes that on to the task's session, and is gone.
PBSDSH = """#!/bin/bash
shift 3
cd /
env -i PATH=/bin:/usr/bin setsid "$@" >/dev/null 2>&1 & task=$!
trap 'kill -TERM -- "-$task"; exit 1' TERM
wait $task
exit 0
"""
SAVES_SLOWLY = """
import time, torch, rankup
run = rankup.init()
model, opt, data = run.prepare(torch.nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=.1),
                               rankup.ResidentData(torch.zeros(1000, 1)), global_batch=2)
for x in run.steps(data, epochs=100):
    model(x).sum().backward(); opt.step(); opt.zero_grad()
    time.sleep(1)
    print("step", run.global_step, flush=True)
print("saved", run.world.rank)
"""


def command(folder: Path, name: str, text: str) -> str:
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / name).write_text(text)
    (folder / "bin" / name).chmod(0o755)
    return f"{folder / 'bin'}:/usr/bin:/bin"


def slurm(folder: Path) -> dict[str, str]:
    nodes = {"SLURM_JOB_NODELIST": "127.0.0.[1-2]", "SLURM_JOB_CPUS_PER_NODE": "2(x2)"}
    batch_shell = {
        "SLURM_JOB_ID": "107",
        "SLURMD_NODENAME": "n1",
        "SLURM_NODEID": "0",
        "SLURM_PROCID": "0",
    }
    command(folder, "scancel", SCANCEL)
    return {"PATH": command(folder, "srun", SRUN), **nodes, **batch_shell}


def pbs(folder: Path) -> dict[str, str]:
    (folder / "nodes").write_text("127.0.0.1\n127.0.0.1\n127.0.0.2\n127.0.0.2\n")
    path = command(folder, "pbsdsh", PBSDSH)
    return {"PATH": path, "PBS_JOBID": "107.head", "PBS_NODEFILE": str(folder / "nodes")}


@pytest.mark.repeated
@pytest.mark.parametrize("allocation", [slurm, pbs])
def test_the_whole_allocation_is_used(tmp_path, allocation):
    keys = "('RANK', 'WORLD_SIZE', 'GROUP_RANK', 'OWN')"
    name = script(tmp_path, f"import os; print(*(os.environ[k] for k in {keys}))")
    env = {**allocation(tmp_path), "OWN": "it's mine"}
    run = Started(tmp_path, "--nproc-per-node", "1", name, env=env).end()
    assert run.code == 0, run.err
    assert sorted(run.out.splitlines()) == ["[rank 0] 0 2 0 it's mine", "[rank 1] 1 2 1 it's mine"]
    assert (run.outcome["outcome"], run.outcome["nnodes"]) == ("done", 2)
    assert json.loads((run.run_dir / "node-1.json").read_text())["nproc_per_node"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("allocation", [slurm, pytest.param(pbs, marks=pytest.mark.campaign)])
def test_a_failure_on_any_node_fails_the_run_with_its_reason(tmp_path, allocation):
    name = script(
        tmp_path,
        """
        import os
        if os.environ["RANK"] == "1":
            raise ValueError("no good")
        """,
    )
    run = Started(tmp_path, "--nproc-per-node", "1", name, env=allocation(tmp_path)).end()
    assert run.code == 1
    assert "[rank 1] ValueError: no good" in run.err
    assert "error: rank 1 failed first on node 1: ValueError: no good [worker-failed]" in run.err
    assert (run.outcome["failed_rank"], run.outcome["worker_code"]) == (1, 1)


@pytest.mark.repeated
@pytest.mark.parametrize("allocation", [slurm, pbs])
def test_ranks_that_save_are_told_once_and_waited_for(tmp_path, allocation):
    """srun KILLs its tasks when it is told to end, and pbsdsh is gone at once."""
    name = script(tmp_path, SAVES_SLOWLY)
    run = Started(tmp_path, "--nproc-per-node", "1", name, env=allocation(tmp_path))
    assert run.process.stdout is not None
    for line in run.process.stdout:
        if "step 1" in line:
            break
    run.send(signal.SIGTERM)
    run.end()
    assert run.code == 75, run.out + run.err
    assert [path.name for path in (run.run_dir / "snapshots").glob("step-*")] != []
    if allocation is slurm:  # the agents' step, and no other one of the job
        assert (tmp_path / "scancel-arguments").read_text() == "--signal=TERM 107.3\n"


@pytest.mark.slow
def test_asking_to_be_requeued_is_no_failure_to_srun(tmp_path):
    name = script(
        tmp_path,
        """
        import os, pathlib
        if os.environ["RANK"] == "0":
            (pathlib.Path(os.environ["RANKUP_RUN_DIR"]) / "outcome").write_text("requeue\\n")
        """,
    )
    run = Started(tmp_path, "--nproc-per-node", "1", name, env=slurm(tmp_path)).end()
    assert run.code == 75, run.err
    assert "--cpus-per-task=2" in (tmp_path / "srun-arguments").read_text()


def test_an_agent_is_rankup_run_by_hand(tmp_path, monkeypatch):
    (tmp_path / "train.py").touch()
    monkeypatch.setattr(sys, "executable", "/py")
    flags = {"nproc_per_node": 4, "max_restarts": 1, "threads": 2}
    job = resolve_here(flags, command=("train.py", "--nnodes", "a b"), folder=tmp_path)
    allocation = Allocation("slurm", "7", ("a", "b"), inside=False)
    assert agents.agent_command(job, allocation, RunDir(Path("/runs/x"))) == (
        '/py -m rankup run --nnodes=2 --node-rank "$NODE_RANK" --rdzv-endpoint=a:0 --rdzv-timeout=300'
        " --nproc-per-node=4 --max-restarts=1 --threads=2 --run-dir=/runs/x -- train.py --nnodes 'a b'"
    )


@pytest.mark.slow
@pytest.mark.parametrize("allocation", [pytest.param(slurm, marks=pytest.mark.campaign), pbs])
def test_a_users_variables_reach_the_ranks_as_they_are(tmp_path, allocation):
    keys = "('RUN', 'HOSTS', 'TMPDIR', 'i')"
    name = script(tmp_path, f"import os; print(*(os.environ.get(k) for k in {keys}))")
    env = {**allocation(tmp_path), "HOSTS": "two\nlines", "i": "its own"}
    run = Started(tmp_path, "--nproc-per-node", "1", name, env=env).end()
    assert run.code == 0, run.err
    assert run.out.count("None two") == 2 and run.out.count("its own") == 2, run.out
    assert not list(run.run_dir.glob("agent-*.sh"))  # they hold the environment


@pytest.mark.slow
@pytest.mark.parametrize("allocation", [pytest.param(slurm, marks=pytest.mark.campaign), pbs])
def test_agents_end_when_rankup_run_is_killed(tmp_path, allocation):
    name = script(
        tmp_path,
        """
        import os, pathlib, time
        pathlib.Path(f"here-{os.environ['RANK']}").write_text(str(os.getpid()))
        time.sleep(600)
        """,
    )
    env = allocation(tmp_path)
    run = Started(tmp_path, "--nproc-per-node", "1", name, env=env)
    ranks = [psutil.Process(int(text)) for i in (0, 1) if (text := written(run.wait_for(f"here-{i}")))]
    run.send(signal.SIGKILL)
    run.end()
    _, alive = psutil.wait_procs(ranks, timeout=240)
    for rank in alive:
        rank.kill()
    assert (len(ranks), alive) == (2, [])


def written(path: Path) -> str:
    while not (text := path.read_text()):
        time.sleep(0.02)
    return text


@pytest.mark.parametrize(
    ("scheduler", "commands", "fanout"),
    [
        ("slurm", {"pbsdsh"}, ("auto", "")),
        ("pbs", {"pbsdsh", "mpiexec (Open MPI)"}, ("auto", "")),
        ("pbs", {"mpiexec (Open MPI)"}, ("mpiexec", "openmpi")),
        ("pbs", {"mpiexec"}, ("mpiexec", "pals")),
    ],
)
def test_the_fan_out_is_what_the_site_has(monkeypatch, tmp_path, scheduler, commands, fanout):
    for name in commands:
        file = tmp_path / name.split()[0]
        file.write_text(f"#!/bin/sh\necho '{name}'\n")
        file.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert agents.choose_fanout(Allocation(scheduler, "1", ("a",), inside=True)) == fanout
