"""A job's life on the real scheduler, from ``rankup submit`` to its exit code."""

from __future__ import annotations

import json
import sys

import pytest
from lab import HEAD, Lab

pytestmark = pytest.mark.cluster

RANKUP = (sys.executable, "-m", "rankup")


def test_submit_follow_to_the_end_with_the_jobs_own_code(cluster: Lab):
    (cluster.shared / "ends.py").write_text(
        "import os, sys\nprint('hello from', os.uname().nodename, flush=True)\nsys.exit(int(sys.argv[1]))\n"
    )
    for code in (0, 3):
        options = ["--site", "slurm", "--name", f"ends{code}", "--time", "5m", "--follow"]
        done = cluster.run(HEAD, [*RANKUP, "submit", *options, "ends.py", str(code)], timeout=100)
        assert done.code == code, done.out + done.err
        assert "hello from node1" in done.out
        status = cluster.run(HEAD, [*RANKUP, "status", "--json", f"ends{code}"])
        (run,) = json.loads(status.out)
        assert (run["state"], run["code"]) == ("failed" if code else "done", code)
