"""The wait in the queue of each size, from a scheduler that a site names."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from rankup.errors import RankupError
from rankup.scale.predict.points import Size
from rankup.scale.predict.queue_wait import queue_waits, wait_text

SIZES = [Size(2, 4), Size(4, 4)]
FLAGS = {"time": "1h"}


@pytest.fixture
def sbatch(tmp_path, monkeypatch):
    """Write the body of a fake sbatch, which notes its calls."""
    calls = tmp_path / "calls"

    def write(body: str):
        path = tmp_path / "bin" / "sbatch"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/bash\necho "$@" >>{calls}\n{body}\n')
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")
        return lambda: calls.read_text().splitlines() if calls.exists() else []

    return write


def test_each_size_is_asked_with_its_shape(sbatch):
    later = (datetime.now() + timedelta(hours=2)).strftime("%Y-%m-%dT%H:%M:%S")
    calls = sbatch(f"echo 'sbatch: Job 3 to start at {later} using 8 processors' >&2")

    first, second = queue_waits(SIZES, "slurm", FLAGS, "cpu")

    assert 7100 < first.seconds <= 7200 and 7100 < second.seconds <= 7200
    assert "--nodes=2" in calls()[0] and "--nodes=4" in calls()[1] and "--test-only" in calls()[0]
    assert wait_text([first]).startswith("2 × 4: 1 h 59 min") or wait_text([first]) == "2 × 4: 2 h 00 min"


def test_a_start_in_the_past_is_no_wait(sbatch):
    sbatch("echo 'sbatch: Job 3 to start at 2020-01-01T00:00:00 using 8 processors' >&2")
    assert queue_waits(SIZES[:1], "slurm", FLAGS, "cpu")[0].seconds == 0


def test_a_scheduler_that_does_not_answer_is_asked_once_and_named(sbatch):
    calls = sbatch("echo 'sbatch: error: Unable to contact slurm controller (connect failure)' >&2; exit 1")

    waits = queue_waits(SIZES, "slurm", FLAGS, "cpu")

    assert [one.seconds for one in waits] == [None, None]
    assert wait_text(waits).count("unknown (SLURM's controller does not answer)") == 2
    assert len(calls()) == 1


def test_a_size_that_the_cluster_lacks_leaves_the_others(sbatch):
    calls = sbatch("echo 'allocation failure: Requested node configuration is not available' >&2; exit 1")
    assert [one.seconds for one in queue_waits(SIZES, "slurm", FLAGS, "cpu")] == [None, None]
    assert len(calls()) == 2


def test_without_a_queue_there_is_no_wait():
    one, two = queue_waits([Size(1, 4), Size(2, 4)], "local", FLAGS, "cpu")
    assert one.seconds == 0
    assert two.seconds is None and "one machine" in two.reason


def test_an_unknown_site_is_refused():
    with pytest.raises(RankupError) as caught:
        queue_waits(SIZES, "slrum", FLAGS)
    assert caught.value.code == "unknown-site"
