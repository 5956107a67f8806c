"""What can run out on a node."""

from __future__ import annotations

import os

import psutil
import pytest

from rankup.monitor import limits
from rankup.monitor.limits import Limits, group_memory


def test_memory_and_disk_are_those_of_the_system(tmp_path):
    told = Limits(str(tmp_path)).read()
    assert told["memory_total"] == psutil.virtual_memory().total
    disk = os.statvfs(tmp_path)
    assert told["disk_total"] == disk.f_blocks * disk.f_frsize
    assert told["disk_free"] == pytest.approx(disk.f_bavail * disk.f_frsize, rel=0.2)


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (("memory.max", "1000", "memory.current", "800", "memory.stat", "inactive_file 300\n"), (500, 1000)),
        (("memory.max", "max", "memory.current", "800", "memory.stat", ""), None),
        (
            (
                *("memory.limit_in_bytes", "1000", "memory.usage_in_bytes", "800"),
                *("memory.stat", "inactive_file 1\ntotal_inactive_file 300\n"),
            ),
            (500, 1000),
        ),
        (
            ("memory.limit_in_bytes", str((1 << 63) - 4096), "memory.usage_in_bytes", "8", "memory.stat", ""),
            None,
        ),
        (("memory.max", "1000"), None),
        ((), None),
    ],
)
def test_the_limit_of_a_control_group(tmp_path, files, told):
    for name, text in zip(files[::2], files[1::2], strict=True):
        (tmp_path / name).write_text(text)
    assert group_memory(str(tmp_path)) == told


def test_of_several_limits_the_one_with_the_least_room_counts(tmp_path, monkeypatch):
    for name, used, limit in (("job", 90, 100), ("step", 10, 1000)):
        (tmp_path / name).mkdir()
        for file, value in (("memory.max", limit), ("memory.current", used), ("memory.stat", 0)):
            (tmp_path / name / file).write_text(str(value))
    monkeypatch.setattr(limits, "memory_groups", lambda: [str(tmp_path / "step"), str(tmp_path / "job")])
    told = Limits(str(tmp_path)).read()
    assert (told["job_memory"], told["job_memory_limit"]) == (90, 100)


def test_a_run_directory_that_is_gone_tells_no_disk(tmp_path):
    assert Limits(str(tmp_path / "gone")).read()["disk_free"] is None
