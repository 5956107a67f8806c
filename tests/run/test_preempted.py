"""SIGTERM to ``rankup run``: ranks that save as they go are given the time to, and the run asks to be requeued."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("warm_python")

SCRIPT = """
import time, torch, rankup
run = rankup.init()
model, opt, data = run.prepare(torch.nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=.1),
                               rankup.ResidentData(torch.zeros(1000, 1)), global_batch=2)
for x in run.steps(data, epochs=100):
    model(x).sum().backward(); opt.step(); opt.zero_grad()
    time.sleep(0.05)
    print("step", run.global_step, flush=True)
"""


@pytest.mark.parametrize("processes", [1, 2])
def test_a_run_that_is_preempted_saves_and_ends_with_75(tmp_path: Path, processes: int):
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "rankup", "run", "--nproc-per-node", str(processes), "train.py"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "step 3" in line:
            break
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=240)
    assert process.returncode == 75, rest
    (run,) = (tmp_path / "runs" / "train").iterdir()
    assert (run / "outcome").read_text() == "requeue\n"
    assert [path.name for path in (run / "snapshots").glob("step-*")] != []
    assert not (run / "listening").exists()
