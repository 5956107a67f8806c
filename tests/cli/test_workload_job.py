"""From ``--strategy`` to the number of processes."""

from __future__ import annotations

import pytest

from rankup.cli.workload_job import training_of, workload_job
from rankup.resolve import here


@pytest.mark.parametrize(
    ("strategy", "asked", "processes"),
    [("none", {}, 1), ("dp", {}, 1), ("ddp", {}, 4), ("dp", {"nproc_per_node": 2}, 2)],
)
def test_strategies_of_one_process_get_one_however_many_gpus_there_are(
    monkeypatch, strategy, asked, processes
):
    monkeypatch.setattr(here, "count_gpus", lambda env: 4)
    job = workload_job(training_of("mnist-cnn", {"strategy": strategy}), asked)
    assert job.spec.nproc_per_node == processes
