"""Time limits of a real SLURM, which knows none below a minute: the two jobs that meet them wait side by side."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from cluster_jobs import log, rankup, submit
from lab import Lab

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

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


TWO_BY_TWO = ("--nodes", "2", "--nproc-per-node", "2", "--launcher", "torchrun", "--cpus-per-task", "1")


@pytest.fixture(scope="module", autouse=True)
def deaf(cluster: Lab) -> dict[str, Any]:
    """A job that asks nobody and sleeps until it is told to end, while the other one trains."""
    (cluster.shared / "deaf.py").write_text(
        "import os, signal, sys, time\n"
        "def save(*_):\n"
        "    time.sleep(2)\n"
        "    print('saved', flush=True)\n"
        "    sys.exit()\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "first = len(open(os.environ['RANKUP_RUN_DIR'] + '/attempts').readlines()) == 1\n"
        "print('working', flush=True)\n"
        "time.sleep(300 if first else 0)\n"
    )
    limit = ("--time", "1m", "--stop-before", "55s")
    return submit(cluster, "--name", "deaf", "--python", sys.executable, *limit, "deaf.py")


def weights(log: str) -> list[str]:
    return re.findall(r"weights((?: -?\d+\.\d{12})+)", log)


@pytest.mark.slow
def test_a_time_limit_that_hits_twice_leaves_three_attempts_one_log_and_the_same_weights(cluster: Lab):
    (cluster.shared / "survives.py").write_text(SURVIVES)
    saved = cluster.shared / "survives.pt"
    # At steps 20 and 40 the script waits for the request, which comes after 25 s.
    limit = ("--time", "1m", "--stop-before", "35s")
    answer = submit(cluster, *TWO_BY_TWO, *limit, "survives.py", str(saved), "50", "20", "40")
    assert rankup(cluster, "logs", "-f", answer["run"], timeout=400).code == 0, log(answer)
    said, run = log(answer), Path(answer["run"])
    attempts = re.findall(r"^==== rankup: attempt (\d)", said, re.MULTILINE)
    # On a slow machine it needs more than three.
    assert attempts == [str(n + 1) for n in range(max(3, len(attempts)))], said
    begins = re.findall(r"\[rank 3\] begins at (\d+)", said)
    assert begins == ["0", *re.findall(r"\[rank 3\] saved at (\d+)", said)]
    assert (run / "requeues").read_text() == f"{len(attempts) - 1}\n"
    whole = submit(cluster, *TWO_BY_TWO, "survives.py", f"{saved}.none", "50")
    assert rankup(cluster, "logs", "-f", whole["run"], timeout=120).code == 0, log(whole)
    assert weights(said) == weights(log(whole)) != []


@pytest.mark.slow
def test_a_script_that_asks_nobody_is_requeued_at_its_time_limit_with_a_warning(
    cluster: Lab, deaf: dict[str, Any]
):
    done = rankup(cluster, "logs", "-f", deaf["run"], timeout=150)
    assert done.code == 0, done.out + done.err
    assert "could not be asked to save" in done.out
    assert done.out.count("saved\n") == 1, done.out  # SLURM tells the step: srun would have killed it
    assert done.out.count("working") == 2 and done.out.count("==== rankup: attempt") == 2
