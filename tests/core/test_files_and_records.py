"""Files are whole or absent; records outlive a crash; a run directory is its owner's."""

from __future__ import annotations

import json
import multiprocessing
import os
import stat
import time
from pathlib import Path

import pytest

from rankup.core.files import locked, make_folder, write_atomic
from rankup.core.records import RecordWriter, read_records
from rankup.core.rundir import RunDir
from rankup.errors import RankupError


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomic(path, "old")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_secret_is_never_readable_by_others_not_even_before_the_rename(tmp_path, monkeypatch):
    modes = []
    replace = Path.replace

    def watched(self: Path, target: Path) -> Path:
        modes.append(stat.S_IMODE(self.stat().st_mode))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", watched)
    write_atomic(tmp_path / "secret", b"x", mode=0o600)
    assert modes == [0o600]


def hold(path: str, seconds: float, entered, log: str) -> None:
    with locked(Path(path)):
        entered.set()
        time.sleep(seconds)
        with Path(log).open("a") as file:
            file.write("first\n")


def test_a_locked_section_is_entered_by_one_process_at_a_time(tmp_path):
    context = multiprocessing.get_context("forkserver")
    entered = context.Event()
    log = tmp_path / "log"
    other = context.Process(target=hold, args=(str(tmp_path / "lock"), 0.3, entered, str(log)))
    other.start()
    try:
        assert entered.wait(30)
        with locked(tmp_path / "lock"), log.open("a") as file:
            file.write("second\n")
    finally:
        other.join()
    assert log.read_text() == "first\nsecond\n"


def test_records_are_read_back_and_a_line_cut_by_a_crash_is_passed_over(tmp_path):
    path = tmp_path / "records" / "steps.jsonl"
    with RecordWriter(path) as writer:
        writer.write("step", loss=0.5)
        writer.write("epoch", accuracy=0.9)
    with path.open("a") as file:
        file.write('{"kind": "step", "lo')
    assert [r["kind"] for r in read_records(path)] == ["step", "epoch"]
    assert read_records(path, "epoch")[0]["accuracy"] == 0.9
    assert read_records(tmp_path / "none") == []


def test_a_run_directory_is_private_and_its_word_comes_after_its_details(tmp_path):
    run = RunDir.create(tmp_path / "runs", "my-run")
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o700
    assert run.path.parent == tmp_path / "runs" / "my-run"
    assert run.outcome() is None
    run.write_outcome("requeue", {"exit_code": 75})
    assert run.outcome() == "requeue"
    assert json.loads((run.path / "outcome.json").read_text()) == {"exit_code": 75}
    assert RunDir.from_environment({"RANKUP_RUN_DIR": str(run.path)}) == run
    assert RunDir.from_environment({}) is None


@pytest.mark.parametrize("name", ["", "../up", "a/b", "-n", "a b"])
def test_a_name_that_could_leave_the_runs_directory_is_refused(tmp_path, name):
    with pytest.raises(RankupError, match="cannot name a run"):
        RunDir.create(tmp_path, name)


def test_a_directory_that_cannot_be_made_is_an_error_that_says_what_it_was_for(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RankupError, match="cannot make the runs directory"):
        make_folder(tmp_path / "file" / "runs", purpose="runs directory")
