"""``--spare``: a node is lost, and the job goes on in the same allocation, on a node that it had asked for besides."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_jobs import log, rankup, submit
from lab import HEAD, Lab, why_not

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

TRAIN = """\
import hashlib, os, time
import rankup, torch

run = rankup.init()
torch.manual_seed(0)
net = torch.nn.Linear(8, 1)
points = torch.utils.data.TensorDataset(torch.randn(64, 8))
model, opt, data = run.prepare(net, lambda p: torch.optim.Adam(p, lr=0.05), points, global_batch=8)
for (x,) in run.steps(data, epochs=2):
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
    time.sleep(float(os.environ["PACE"]))
words = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()
print("on", os.environ["SLURMD_NODENAME"], "weights", words, flush=True)
"""


@pytest.fixture
def three_nodes() -> Iterator[Lab]:
    if reason := why_not():
        pytest.skip(f"no SLURM lab: {reason}")
    lab = Lab(3)
    try:
        lab.up()
        (lab.shared / "train.py").write_text(TRAIN)
        yield lab
    finally:
        lab.down()


def train(cluster: Lab, name: str, pace: float, *words: str) -> dict[str, str]:
    return submit(
        cluster,
        *("--name", name, "--nodes", "2", "--env", f"PACE={pace}", "--env", "RANKUP_SNAPSHOT_EVERY=1 steps"),
        *(*words, "train.py"),
    )


@pytest.mark.timeout(600)
def test_a_job_that_loses_a_node_goes_on_with_the_spare_one_to_the_same_weights(three_nodes: Lab):
    cluster = three_nodes
    whole = train(cluster, "whole", 0)
    assert rankup(cluster, "logs", "-f", whole["run"]).code == 0, log(whole)
    lossy = train(cluster, "lossy", 1, "--spare", "1")
    run = Path(lossy["run"])
    cluster.until(lambda: [*run.glob("snapshots/step-*")])
    cluster.cut_power("node2")
    done = rankup(cluster, "logs", "-f", lossy["run"])
    assert done.code == 0, done.out + done.err
    assert "srun has lost a node of this job, or could start nothing there: node2" in done.out
    assert "==== rankup: without node2, on node1 node3" in done.out
    assert [line.split()[0] for line in (run / "attempts").read_text().splitlines()] == ["1", "2"]
    assert "Restarts=0 " in cluster.run(HEAD, ["scontrol", "show", "job", lossy["job"]]).out
    ends = re.findall(r"on (\w+) weights (\w+)", done.out)
    assert {node for node, _ in ends} == {"node1", "node3"}
    assert {words for _, words in ends} == {re.findall(r"weights (\w+)", log(whole))[0]}


@pytest.mark.timeout(600)
def test_a_job_that_loses_more_nodes_than_it_has_spare_ones_is_requeued(three_nodes: Lab):
    """SLURM has not noticed yet that both are dead, and gives them to the job."""
    cluster = three_nodes
    cluster.cut_power("node2")
    cluster.cut_power("node3")
    answer = train(cluster, "dead", 0, "--spare", "1")
    cluster.until(lambda: "requeue 1 of" in log(answer))
    said = log(answer)
    assert "no spare node can replace: " in said, said
    cluster.revive("node2")
    cluster.revive("node3")
