"""Failures that happen inside a job's processes: real ones, in a script without rankup."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from rankup.core.records import read_records

pytestmark = pytest.mark.usefixtures("warm_python")
STARTUP = Path(__file__).parents[2] / "src" / "rankup" / "runtime" / "tracing" / "startup"
JOBS = Path(__file__).parent / "jobs"


def train(folder: Path, inside: str, script: Path = JOBS / "train.py") -> subprocess.CompletedProcess[str]:
    (folder / "1").mkdir(exist_ok=True)
    env = {
        **os.environ,
        "PYTHONPATH": str(STARTUP),
        "RANKUP_TRACE": str(folder / "1"),
        "RANKUP_DRILL": inside,
    }
    env["RANKUP_TRACE_REFERENCE"] = env["RANKUP_TRACE"]  # so that a second process finds its place
    (folder / "job").mkdir(exist_ok=True)
    command = [sys.executable, str(script), "12"]
    return subprocess.run(command, cwd=folder / "job", env=env, capture_output=True, text=True, timeout=300)


def steps(folder: Path) -> list[int]:
    return [record["step"] for record in read_records(folder / "1" / "rank-0.jsonl", "step")]


def test_a_rank_is_killed_after_its_step_and_only_once(tmp_path: Path):
    assert train(tmp_path, "die 7 0").returncode == -signal.SIGKILL
    assert steps(tmp_path) == [1, 2, 3, 4, 5, 6, 7]
    assert train(tmp_path, "die 7 0").returncode == 0  # a launcher that starts it again in the same attempt
    assert steps(tmp_path)[-1] == 12


def test_a_rank_that_is_not_meant_goes_on(tmp_path: Path):
    assert train(tmp_path, "die 7 1").returncode == 0
    assert steps(tmp_path)[-1] == 12


def test_a_save_on_a_full_disk_is_cut_in_the_middle_and_the_trace_is_not(tmp_path: Path):
    done = train(tmp_path, "full 2 *")
    assert done.returncode != 0 and "Error" in done.stderr
    assert 0 < (tmp_path / "job" / "last.pt.tmp").stat().st_size <= 512
    assert steps(tmp_path) == [1, 2, 3, 4, 5]
    assert (tmp_path / "1" / "full").exists()


@pytest.mark.slow
@pytest.mark.own_python  # a stand-in that is killed first would take the other with it
def test_all_processes_of_an_attempt_on_a_machine_end_together(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(
        "import subprocess, sys\n"
        "child = subprocess.Popen(['sleep', '300'])\n"
        "open('child', 'w').write(str(child.pid))\n" + (JOBS / "train.py").read_text()
    )
    assert train(tmp_path, "node 3 0", script).returncode == -signal.SIGKILL
    child = int((tmp_path / "job" / "child").read_text())
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_the_pace_ends_when_its_file_goes(tmp_path: Path):
    (tmp_path / "pace").write_text("0.2")
    env = {
        **os.environ,
        "PYTHONPATH": str(STARTUP),
        "RANKUP_TRACE": str(tmp_path / "1"),
        "RANKUP_DRILL": "pace 4 *",
    }
    (tmp_path / "1").mkdir()
    done = subprocess.run(
        [sys.executable, str(JOBS / "train.py"), "12"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    records = read_records(tmp_path / "1" / "rank-0.jsonl", "step")
    waits = [after["time"] - before["time"] for before, after in itertools.pairwise(records)]
    assert min(waits[4:]) >= 0.2
