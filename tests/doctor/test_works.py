"""What ``rankup doctor`` says of what works."""

from __future__ import annotations

import pytest

from rankup.doctor import examine
from rankup.doctor.facts import Facts
from rankup.doctor.works import works


@pytest.mark.parametrize(
    ("flops", "said"),
    [
        ([208e9], "208 GFLOP/s"),
        ([208.1e9, 207.9e9], "208 GFLOP/s"),
        ([190e9, 2080e9], "190 to 2,080 GFLOP/s by host"),
    ],
)
def test_a_rate_is_one_number_unless_hosts_differ(flops: list[float], said: str):
    nodes = {node: {"compute": {"ranks": [{"flops": one}]}} for node, one in enumerate(flops)}
    facts = Facts(tuple(f"n{node}" for node in nodes), nodes, [])
    assert dict(works(facts))["product"] == said


def test_what_was_not_measured_is_not_said():
    assert "product" not in dict(works(Facts(("n0",), {0: {}}, [])))


@pytest.mark.parametrize(
    ("allocation", "said"), [("pbs", "PBS (qsub)"), ("slurm", "SLURM (sbatch)"), ("", "SLURM (sbatch)")]
)
def test_the_scheduler_is_that_of_the_job_where_two_are_installed(
    monkeypatch: pytest.MonkeyPatch, allocation: str, said: str
):
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    here = examine._here(allocation)
    assert dict(works(Facts(("n0",), {0: {}}, [], here=here)))["scheduler"] == said
