"""State in a queue: what is not declared stops the first attempt, what is declared survives requeues."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from cluster_jobs import log, rankup, submit
from lab import HEAD, Lab

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

# A curriculum: how hard the samples are follows from the losses so far.
SCRIPT = """
import hashlib, os, sys, time
from pathlib import Path
import torch, rankup
run = rankup.init(seed=4, snapshots=rankup.Snapshots(every="2 steps"))
x = torch.randn(120, 20, generator=torch.Generator().manual_seed(1))
net = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 5))
model, opt, data = run.prepare(net, lambda p: torch.optim.SGD(p, lr=.1, momentum=.9),
                               rankup.ResidentData(x, (x @ torch.ones(20, 5)).sin()), global_batch=12)
STATE
for a, b in run.steps(data, epochs=6):
    loss = (model(HARDNESS * a) - b).square().mean(); loss.backward(); opt.step(); opt.zero_grad()
    HARDNESS = min(2.0, HARDNESS + 0.01 * float(run.mean(loss)))
    if run.world.rank == 0:
        print(f"step {run.global_step}", flush=True)
    time.sleep(0.1)  # ranks look for a request once in a second or so
    while str(run.global_step) in sys.argv[1:] and not Path(f"asked-{run.global_step}").exists():
        time.sleep(0.05)
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()
print(f"rank {run.world.rank} has {digest} {HARDNESS}", flush=True)
"""
PLAIN = SCRIPT.replace("STATE", "hardness = 0.5").replace("HARDNESS", "hardness")
DECLARED = SCRIPT.replace("STATE", "values = run.register(hardness=0.5)").replace(
    "HARDNESS", "values.hardness"
)
ASKED = "asked the ranks to save and stop"
SHAPE = ("--nodes", "2", "--nproc-per-node", "1", "--cpus-per-task", "1")


@pytest.mark.slow
def test_a_value_that_no_snapshot_holds_stops_the_first_attempt_with_the_call_that_cures_it(
    cluster: Lab, uninterrupted: set[tuple[str, ...]]
):
    (cluster.shared / "plain.py").write_text(PLAIN)
    answer = submit(cluster, "--name", "plain", *SHAPE, "plain.py")
    assert rankup(cluster, "logs", "-f", answer["run"], timeout=200).code == 1, log(answer)
    said, run = log(answer), Path(answer["run"])
    assert "[state-lost]" in said and "run.register(hardness=hardness)" in said, said
    assert said.count("==== rankup: attempt") == 1 and not (run / "requeues").exists()
    assert "step 30" not in said, said
    # Registered under its own name it is found in the snapshots of that attempt.
    (cluster.shared / "plain.py").write_text(DECLARED)
    assert rankup(cluster, "resume", answer["run"]).code == 0
    assert rankup(cluster, "logs", "-f", answer["run"], timeout=200).code == 0, log(answer)
    assert results(log(answer)) == uninterrupted


@pytest.mark.slow
def test_a_declared_value_survives_a_requeue_bit_for_bit(cluster: Lab, uninterrupted: set[tuple[str, ...]]):
    (cluster.shared / "declared.py").write_text(DECLARED)
    pauses = ("5",)
    answer = submit(cluster, "--name", "declared", *SHAPE, "declared.py", *pauses)
    for number, step in enumerate(pauses, 1):
        cluster.until(lambda step=step: re.search(rf"step {step}\n", log(answer)), 120)
        done = cluster.run(HEAD, ["scancel", "--batch", "--signal=USR1", answer["job"]])
        assert done.code == 0, done.out + done.err
        cluster.until(lambda number=number: log(answer).count(ASKED) == number, 120)
        (cluster.shared / f"asked-{step}").touch()
        cluster.until(lambda number=number: requeues(answer) == number, 120)
    assert rankup(cluster, "logs", "-f", answer["run"], timeout=200).code == 0, log(answer)
    said = log(answer)
    assert said.count("==== rankup: attempt") == 2 and "[state-lost]" not in said, said
    assert results(said) == uninterrupted


def requeues(answer: dict[str, Any]) -> int:
    path = Path(answer["run"]) / "requeues"
    return int(path.read_text()) if path.exists() else 0


def results(text: str) -> set[tuple[str, ...]]:
    """Weights and hardness of each rank."""
    found = set(re.findall(r"rank (\d) has (\w{64}) ([\d.]+)", text))
    assert len(found) == 2, text
    return found


@pytest.fixture(scope="module")
def uninterrupted(cluster: Lab) -> set[tuple[str, ...]]:
    (cluster.shared / "whole.py").write_text(DECLARED)
    answer = submit(cluster, "--name", "whole", *SHAPE, "whole.py")
    assert rankup(cluster, "logs", "-f", answer["run"], timeout=200).code == 0, log(answer)
    return results(log(answer))
