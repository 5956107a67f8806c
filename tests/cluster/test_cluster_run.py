"""``rankup run`` inside an allocation uses all of it; and two machines by hand, each with processes of its own."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import threading

import pytest
from lab import Lab

from rankup.core.records import read_records
from rankup_process import processes_mentioning

pytestmark = pytest.mark.cluster

RUN = ("-m", "rankup", "run", "--runs-root", "runs")
WORLD = ("-m", "rankup", "world", "--json")

MEETS = """
import os, torch, rankup
run = rankup.init()
w = run.world
print("met", w.rank, w.local_rank, w.node_rank, w.world_size, run.sum(w.rank), os.uname().nodename,
      os.environ["OMP_NUM_THREADS"], flush=True)
"""


def met(text: str) -> list[list[str]]:
    """What the ranks printed, whoever put a prefix before it, in the order of their ranks."""
    said = re.findall(r"met (\d+ \d+ \d+ \d+ \d+ node\d \d+)", text)
    return sorted((words.split() for words in said), key=lambda words: int(words[0]))


def test_a_batch_script_of_one_line_uses_both_nodes(cluster: Lab):
    (cluster.shared / "meets.py").write_text(MEETS)
    command = shlex.join([cluster.python, *RUN, "--nproc-per-node", "2", "--name", "batch", "meets.py"])
    job = cluster.sbatch(f"#!/bin/bash\n{command}\n", "-N2", "--ntasks-per-node=1", "--cpus-per-task=4")
    state = cluster.wait(job, timeout=150)
    said = job.log.read_text()
    assert state == "COMPLETED", said
    # The lab's nodes say four cores, but what counts is where a process may really run.
    threads = str(max(1, len(os.sched_getaffinity(0)) // 2))
    assert met(said) == [
        ["0", "0", "0", "4", "6", "node1", threads],
        ["1", "1", "0", "4", "6", "node1", threads],
        ["2", "0", "1", "4", "6", "node2", threads],
        ["3", "1", "1", "4", "6", "node2", threads],
    ]
    assert "[rank 3] met" in said
    (run,) = (cluster.shared / "runs" / "batch").iterdir()
    assert (run / "outcome").read_text() == "done\n"
    assert "met 3" in (run / "logs" / "rank-3.out").read_text()


FAILS = """
import os, sys, time
if os.environ["RANK"] == "3":
    raise ValueError("rank three on the second node")
time.sleep(600)
"""


def test_a_rank_that_raises_on_the_second_node_ends_the_job_with_its_traceback(cluster: Lab):
    (cluster.shared / "fails.py").write_text(FAILS)
    command = shlex.join([cluster.python, *RUN, "--nproc-per-node", "2", "--name", "fails", "fails.py"])
    job = cluster.sbatch(f"#!/bin/bash\n{command}\n", "-N2", "--ntasks-per-node=1", "--cpus-per-task=4")
    assert cluster.wait(job, timeout=150) == "FAILED"
    said = job.log.read_text()
    assert "ValueError: rank three on the second node" in said
    assert said.index("ValueError") < said.index("[worker-failed]")
    assert "rank 3 failed first on node 1: ValueError" in said
    (run,) = (cluster.shared / "runs" / "fails").iterdir()
    assert json.loads((run / "outcome.json").read_text())["failed_rank"] == 3


SAVES = """
import pathlib, time, torch, rankup
run = rankup.init()
model, opt, data = run.prepare(torch.nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=.1),
                               rankup.ResidentData(torch.zeros(1000, 1)), global_batch=4)
for x in run.steps(data, epochs=100):
    model(x).sum().backward(); opt.step(); opt.zero_grad()
    pathlib.Path("stepped").touch()
    time.sleep(0.5)
print("saved", run.world.rank, flush=True)
"""


def test_a_run_that_is_told_to_end_saves_and_leaves_other_steps_of_the_job_alone(cluster: Lab):
    (cluster.shared / "saves.py").write_text(SAVES)
    command = shlex.join([cluster.python, *RUN, "--nproc-per-node", "2", "--name", "saves", "saves.py"])
    text = f"""#!/bin/bash
srun --overlap --nodes=1 --ntasks=1 sleep 600 & other=$!
{command} & run=$!
until [ -e stepped ]; do sleep 0.2; done
kill -TERM $run; wait $run; echo "code $?"
kill -0 $other && echo "the other step goes on"; kill -KILL $other
"""
    job = cluster.sbatch(text, "-N2", "--ntasks-per-node=1", "--cpus-per-task=4")
    cluster.wait(job, timeout=150)
    said = job.log.read_text()
    assert "code 75" in said and "the other step goes on" in said, said
    (run,) = (cluster.shared / "runs" / "saves").iterdir()
    assert list((run / "snapshots").glob("step-*")), said


WAITS = """
import time
time.sleep(600)
"""


def test_each_node_is_sampled_and_scancel_leaves_no_sampler(cluster: Lab):
    (cluster.shared / "waits.py").write_text(WAITS)
    # Not the lab's warm Python: a sampler whose parent is another than it was told ends at once.
    command = shlex.join([sys.executable, *RUN, "--nproc-per-node", "1", "--name", "sampled", "waits.py"])
    job = cluster.sbatch(f"#!/bin/bash\n{command}\n", "-N2", "--ntasks-per-node=1", "--cpus-per-task=4")

    def sampled() -> list[str]:
        files = (cluster.shared / "runs").glob("sampled/*/records/utilization-*.jsonl")
        return sorted(read_records(file)[0]["host"] for file in files if file.stat().st_size)

    def samplers() -> list[list[str]]:
        lines = processes_mentioning(str(cluster.shared / "runs" / "sampled"))
        return [line for line in lines if "rankup.monitor" in line]

    try:
        cluster.until(lambda: len(sampled()) == 2, timeout=150)
        assert len(samplers()) == 2
    finally:
        cluster.run("node1", ["scancel", job.id])
    assert sampled() == ["node1", "node2"]
    cluster.until(lambda: not samplers())


def test_two_machines_by_hand_with_different_numbers_of_processes(cluster: Lab):
    (cluster.shared / "meets.py").write_text(MEETS)
    endpoint = f"{cluster.address('node1')}:18003"
    said: dict[str, str] = {}

    def node(rank: int, processes: int) -> None:
        name = f"node{rank + 1}"
        done = cluster.run(
            name,
            [cluster.python, *RUN, "--nnodes", "2", "--node-rank", str(rank), "--rdzv-endpoint", endpoint,
             "--nproc-per-node", str(processes), "--name", "hand", "meets.py"],
            timeout=150,
        )  # fmt: skip
        said[name] = f"{done.out}\n{done.err}\ncode {done.code}"

    second = threading.Thread(target=node, args=(1, 1))
    second.start()
    node(0, 3)
    second.join()
    assert "code 0" in said["node1"] and "code 0" in said["node2"], said
    assert [words[:6] for words in met(said["node1"] + said["node2"])] == [
        ["0", "0", "0", "4", "6", "node1"],
        ["1", "1", "0", "4", "6", "node1"],
        ["2", "2", "0", "4", "6", "node1"],
        ["3", "0", "1", "4", "6", "node2"],
    ]
