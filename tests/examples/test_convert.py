"""The two loops of docs/how-to/convert-your-loop.md: both train, and the converted one survives a kill bit for bit."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flaky import aborts_at_exit

pytestmark = pytest.mark.usefixtures("warm_python")
CONVERT = Path(__file__).parents[2] / "examples" / "convert"
LIMIT = 300


def accuracy(printed: str) -> float:
    return float(re.findall(r"best accuracy ([\d.]+)", printed)[-1])


def rankup(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "rankup", "run", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "in no snapshot" not in done.stderr
    return done.stdout


def hash_of(folder: Path) -> str:
    return hashlib.sha256((folder / "best.pt").read_bytes()).hexdigest()


@pytest.mark.slow
@aborts_at_exit
def test_both_train_and_the_converted_one_resumes_to_the_same_best_model(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    before = subprocess.run(
        [sys.executable, CONVERT / "before.py"], cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT
    )
    assert before.returncode == 0, before.stderr
    after = rankup(whole, "--nproc-per-node", "2", str(CONVERT / "after.py"))
    assert min(accuracy(before.stdout), accuracy(after)) > 0.94

    command = [sys.executable, "-m", "rankup", "run", "--nproc-per-node", "2", "--name", "killed"]
    process = subprocess.Popen(
        [*command, str(CONVERT / "after.py")], cwd=killed, env={**os.environ}, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while not list(killed.glob("runs/killed/*/snapshots/step-*")) and process.poll() is None:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    resumed = rankup(killed, "--resume", "killed")
    assert accuracy(resumed) == accuracy(after)
    assert hash_of(killed) == hash_of(whole)
