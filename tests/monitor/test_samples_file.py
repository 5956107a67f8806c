"""The file of a host: whole lines, whatever happened before, and one sampler that writes."""

from __future__ import annotations

import contextlib
import json
import subprocess

import pytest

from rankup.core.records import read_records
from rankup.monitor.samples_file import SamplesFile, Turn, path_for


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("gpu-1.cluster_a", "gpu-1.cluster_a"),
        ("../../etc/x y", "etc-x-y"),
        ("", "host"),
        ("ü" * 300, "host"),
        ("a" * 300, "a" * 200),
    ],
)
def test_a_host_is_a_file_name(host, name):
    assert path_for("/runs/x", host) == f"/runs/x/records/utilization-{name}.jsonl"


def test_a_line_that_a_kill_cut_costs_no_other_line(tmp_path):
    path = tmp_path / "samples.jsonl"
    whole = json.dumps({"kind": "sample", "time": 1})
    path.write_text(f'{whole}\n{{"kind": "sam')
    SamplesFile(str(path)).append({"kind": "sample", "time": 2})
    SamplesFile(str(path)).append({"kind": "sample", "time": 3})
    assert [one["time"] for one in read_records(path)] == [1, 2, 3]


def test_records_are_for_their_owner_alone(tmp_path):
    SamplesFile(str(tmp_path / "x"))
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o600


def test_a_deleted_file_is_not_made_again(tmp_path):
    file = SamplesFile(str(tmp_path / "x"))
    (tmp_path / "x").unlink()
    with pytest.raises(OSError, match="No such file"):
        file.append({})
    assert not (tmp_path / "x").exists()


def test_a_line_that_finds_no_room_is_an_error_and_the_others_stay(mount_point):
    mount = ["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", mount_point]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("cannot mount a tmpfs here")
    try:
        file = SamplesFile(str(mount_point / "x"))
        written = 0
        with contextlib.suppress(OSError):
            while written < 1000:
                file.append({"number": written, "text": "x" * 100})
                written += 1
        assert 0 < written < 1000
        assert [one["number"] for one in read_records(mount_point / "x")] == list(range(written))
    finally:
        subprocess.run(["umount", "-l", mount_point], check=True)


def test_one_of_several_samplers_of_a_run_on_a_host_writes_until_it_ends(tmp_path):
    first, second = Turn(str(tmp_path), "a"), Turn(str(tmp_path), "a")
    assert (first.mine(), second.mine(), first.mine()) == (True, False, True)
    (tmp_path / "other").mkdir()
    other_host, other_run = Turn(str(tmp_path), "b"), Turn(str(tmp_path / "other"), "a")
    assert other_host.mine() and other_run.mine()
    del first  # as its process would
    assert second.mine()
