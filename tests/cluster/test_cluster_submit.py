"""A job's life on the real scheduler, from ``rankup submit`` to its exit code."""

from __future__ import annotations

import json
import shlex
import sys

import pytest
from lab import HEAD, Lab

pytestmark = pytest.mark.cluster

RANKUP = ("-m", "rankup")


def test_submit_follow_to_the_end_with_the_jobs_own_code(cluster: Lab):
    (cluster.shared / "ends.py").write_text(
        "import os, sys\nprint('hello from', os.uname().nodename, flush=True)\nsys.exit(int(sys.argv[1]))\n"
    )
    for code in (0, 3):
        options = ["--site", "slurm", "--name", f"ends{code}", "--time", "5m", "--follow"]
        done = cluster.run(
            HEAD, [cluster.python, *RANKUP, "submit", *options, "ends.py", str(code)], timeout=100
        )
        assert done.code == code, done.out + done.err
        assert "hello from node1" in done.out
        status = cluster.run(HEAD, [cluster.python, *RANKUP, "status", "--json", f"ends{code}"])
        (run,) = json.loads(status.out)
        assert (run["state"], run["code"]) == ("failed" if code else "done", code)


def test_an_interactive_shell_needs_no_script_and_is_on_the_node(cluster: Lab):
    """As typed at a terminal, which ``script`` stands for."""
    ask = [
        sys.executable,
        *RANKUP,
        "submit",
        "--site",
        "slurm",
        "--time",
        "5m",
        "--nodes",
        "2",
        "--interactive",
    ]
    typed = "echo I am on $(uname -n); srun --ntasks-per-node=1 bash -c 'echo task on $(uname -n)'; exit 3\n"
    terminal = f"script -qec {shlex.quote(shlex.join(ask))} /dev/null <<'END'\n{typed}END\n"
    done = cluster.run(HEAD, ["bash", "-c", terminal], timeout=240)
    assert done.code == 3, done.out + done.err
    said = [line.strip() for line in done.out.splitlines()]
    assert "I am on node1" in said, done.out
    assert {"task on node1", "task on node2"} <= set(said), done.out
