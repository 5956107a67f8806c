"""The plain DDP example runs unchanged under ``rankup run``."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from flaky import aborts_at_exit

pytestmark = pytest.mark.usefixtures("warm_python")

EXAMPLE = Path(__file__).parents[2] / "examples" / "ddp_plain.py"


@aborts_at_exit
def test_it_trains_on_two_processes(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "rankup", "run", "--nproc-per-node", "2", str(EXAMPLE), "--epochs", "3"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    accuracies = [
        float(a) for a in re.findall(r"^\[rank 0\] epoch \d .* accuracy ([\d.]+)$", done.stdout, re.M)
    ]
    assert len(accuracies) == 3
    assert accuracies[-1] > 0.9
    assert "[rank 1] rank 1 of 2 is done" in done.stdout


def test_it_knows_nothing_of_rankup():
    assert not re.search(r"^\s*(import|from) rankup", EXAMPLE.read_text(), re.M)
