"""From ``--strategy`` to the number of processes."""

from __future__ import annotations

import pytest

from rankup.cli.workload_job import workload_job


@pytest.mark.parametrize(
    ("strategy", "asked", "processes"),
    [("none", "auto", 1), ("dp", "auto", 1), ("ddp", "auto", None), ("dp", "2", 2)],
)
def test_strategies_of_one_process_get_one_however_many_gpus_there_are(strategy, asked, processes):
    job, _ = workload_job("mnist-cnn", asked, options={"strategy": strategy})
    assert job.nproc == processes
