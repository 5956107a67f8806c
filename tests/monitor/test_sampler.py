"""``python -m rankup.monitor``: what it writes, and that it ends with the job, whatever ends that."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import rankup
from rankup.core.records import read_records
from rankup.monitor import sampler
from rankup.monitor.samples_file import Turn
from rankup.scale.report.run_records import read_run

SOURCES = str(Path(rankup.__file__).parents[1])


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "records").mkdir()
    return tmp_path


@pytest.fixture
def start(folder):
    started = []

    def start(*options, arguments=(), **kwargs):
        command = [sys.executable, *options, "-m", "rankup.monitor", folder, *arguments]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def file_in(folder):
    return folder / "records" / f"utilization-{os.uname().nodename}.jsonl"


def samples(folder, count=1, timeout=240):
    """The samples, once there are ``count``."""
    deadline = time.monotonic() + timeout
    while len(found := read_records(file_in(folder))) < count:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def ended(process):
    """It has ended by itself, and said nothing."""
    assert process.communicate(timeout=240) == ("", "")
    return process.returncode


def test_a_sample_has_what_the_report_reads(folder, start):
    start()
    found = samples(folder, 2)
    assert [*found[0]] == [
        *("kind", "time", "host", "cpu_percent", "memory_bytes", "network_sent", "network_received"),
        *("memory_total", "job_memory", "job_memory_limit", "disk_free", "disk_total", "gpus"),
    ]
    assert found[0]["kind"] == "sample"
    assert abs(found[0]["time"] - time.time()) < 60
    (host,) = read_run(folder, "x").hosts
    assert (host.host, len(host.seconds) >= 2, host.seconds[0]) == (os.uname().nodename, True, 0)
    assert host.memory[0] == found[0]["memory_bytes"] > 0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_when_its_parent_is_killed(folder, how):
    """The parent is a shell that does nothing for it: no signal reaches it, and nobody kills it."""
    text = f"{sys.executable} -m rankup.monitor {folder} & echo $!; wait"
    shell = subprocess.Popen(["bash", "-c", text], stdout=subprocess.PIPE, text=True)
    process = psutil.Process(int(shell.stdout.readline()))
    samples(folder)
    shell.send_signal(how)
    shell.wait()
    shell.stdout.close()
    assert psutil.wait_procs([process], timeout=240) == ([process], [])


def test_it_does_not_begin_if_its_parent_is_gone_already(folder, start):
    assert ended(start(arguments=["1"])) == 0


def test_it_ends_when_the_outcome_is_written_and_not_by_that_of_an_earlier_attempt(folder, start):
    (folder / "outcome").write_text("failed\n")
    process = start()
    samples(folder, 2)
    (folder / "new").write_text("done\n")
    (folder / "new").rename(folder / "outcome")
    assert ended(process) == 0


def test_it_ends_when_the_run_directory_vanishes(folder, start):
    process = start()
    samples(folder)
    shutil.rmtree(folder)
    assert ended(process) == 0
    assert not folder.exists()


@pytest.mark.parametrize("spoil", ["no records", "a file", "no directory"])
def test_records_that_cannot_be_written_are_no_error(folder, start, spoil):
    shutil.rmtree(folder if spoil == "no directory" else folder / "records")
    if spoil == "a file":
        (folder / "records").touch()
    assert ended(start()) == 0


def test_a_sampler_whose_turn_it_is_not_waits_and_takes_over(folder, start):
    first = Turn(str(folder), os.uname().nodename)
    assert first.mine()
    start()
    assert not file_in(folder).exists()
    del first  # as its process would, however it ends
    samples(folder, 2)


def test_wrong_usage_and_a_missing_psutil_are_one_line_each(folder, start):
    wrong = start(arguments=["x"])
    assert wrong.communicate()[1] == "usage: python -m rankup.monitor RUN_DIR [PARENT]\n"
    bare = start("-S", env={**os.environ, "PYTHONPATH": SOURCES})
    assert bare.communicate()[1] == "rankup.monitor requires psutil: No module named 'psutil'\n"
    assert (wrong.returncode, bare.returncode) == (1, 1)


def test_it_imports_little():
    text = (
        "import sys; import rankup.monitor.sampler; from rankup.monitor.gpus import Gpus; Gpus(None);"
        "print(*{'torch', 'pydantic', 'typer', 'rich', 'numpy', 'dataclasses', 'pathlib'} & sys.modules.keys())"
    )
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, text=True).stdout == "\n"


class Clock:
    """Time that passes only in ``sleep``; at ``end`` the run's outcome is written."""

    def __init__(self, folder, end):
        self.now, self._end, self._folder = 0.0, end, folder

    def monotonic(self):
        return self.now

    time = monotonic

    def sleep(self, seconds):
        assert 0 < seconds <= 1, "a parent that is gone is to be noticed soon"
        self.now += seconds
        if self.now >= self._end:
            (self._folder / "outcome").touch()


class Nothing:
    def read(self):
        return {}


def test_after_an_hour_there_is_a_sample_every_ten_seconds(folder, monkeypatch):
    monkeypatch.setattr(sampler, "time", Clock(folder, 3600 + 100))
    monkeypatch.setattr(sampler, "Counters", Nothing)
    sampler.sample(str(folder), os.getppid())
    times = [json.loads(line)["time"] for line in file_in(folder).read_text().splitlines()]
    assert times[:3600] == list(range(1, 3601))
    assert times[3600:] == [3600 + 10 * i for i in range(1, 10)]


def test_it_writes_nothing_while_it_is_not_its_turn(folder, monkeypatch):
    first = Turn(str(folder), os.uname().nodename)
    assert first.mine()
    monkeypatch.setattr(sampler, "time", Clock(folder, 20))
    sampler.sample(str(folder), os.getppid())
    assert (folder / "outcome").exists()
    assert not file_in(folder).exists()
