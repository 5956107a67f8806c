"""A save that is killed, or refused by the file system, at every single operation; and two runs on one directory."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from ranks import context
from rankup.errors import RankupError
from rankup.snapshots import disk
from rankup.snapshots.layout import Retention, entries
from rankup.snapshots.saver import Saver
from rankup.snapshots.state import SnapshotState
from snapshot_faults import ALONE, FULL, At, killed, operations, resumed, saved, state


@pytest.fixture
def template(tmp_path):
    """A directory with step 1; and what a save of step 2 does, when step 1 is pruned after it."""
    root = saved(tmp_path / "template", 1)
    seen = operations(Path(shutil.copytree(root, tmp_path / "probe", symlinks=True)), 2, keep=1)
    return root, [what for what, _ in seen]


@pytest.mark.slow
def test_killed_at_any_operation_the_newest_whole_snapshot_is_resumed(template, tmp_path):
    root, seen = template
    durable = seen.index("rename")
    assert len(seen) > 15
    for number in range(len(seen)):
        copy = Path(shutil.copytree(root, tmp_path / str(number), symlinks=True))
        assert killed(copy, 2, 1, number) == -9
        assert resumed(copy) == (1 if number <= durable else 2), (number, seen[number])
        assert not list(copy.glob("*.tmp"))
        saved(copy, 3)
        assert resumed(copy) == 3


@pytest.mark.slow
def test_refused_at_any_operation_it_is_one_error_and_the_next_save_succeeds(template, tmp_path):
    root, seen = template
    durable = seen.index("rename")
    for number in range(len(seen)):
        copy = Path(shutil.copytree(root, tmp_path / str(number), symlinks=True))
        with Saver(copy, ALONE, keep=Retention(last=1)) as saver:
            disk.before = At(number, FULL)
            try:
                saver.save(2, state(2))
                with pytest.raises(RankupError, match="no space left for a snapshot") as error:
                    saver.wait()
            finally:
                disk.before = None
            assert error.value.code == "no-space"
            found = saver.newest()
            assert found is not None and found.step == (1 if number <= durable else 2), (number, seen[number])
            saver.save(3, state(3))
        assert resumed(copy) == 3


def test_an_error_of_the_writer_is_raised_once_by_whatever_comes_next(tmp_path):
    with Saver(tmp_path, ALONE) as saver:
        disk.before = At(0, FULL)
        try:
            saver.save(1, state(1))
            with pytest.raises(RankupError, match="no space left"):
                saver.save(2, state(2))
        finally:
            disk.before = None
        saver.wait()
        saver.save(3, state(3))
    assert resumed(tmp_path) == 3


@contextlib.contextmanager
def mounted(place: Path, *options: str):
    """A mount of its own for a test; skips where this user may not."""
    place.mkdir(exist_ok=True)
    done = subprocess.run(["mount", *options, str(place)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot mount: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_disk_that_is_really_full_is_one_error_and_the_old_snapshot_stays(mount_point):
    root = mount_point / "small"
    with mounted(root, "-t", "tmpfs", "-o", "size=1m", "tmpfs"):
        saved(root, 1)
        with Saver(root, ALONE) as saver:
            saver.save(2, SnapshotState({"large": torch.zeros(500_000)}))
            with pytest.raises(RankupError, match="no space left for a snapshot") as error:
                saver.wait()
        assert "earlier snapshots are untouched" in error.value.hint
        assert not list(root.glob("*.tmp"))
        assert resumed(root) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_read_only_directory_is_one_error(tmp_path, mount_point):
    source, root = saved(tmp_path / "source", 1), mount_point / "read-only"
    with mounted(root, "--bind", "-o", "ro", str(source)):
        with pytest.raises(RankupError) as error:
            Saver(root, ALONE)
        assert error.value.code == "unwritable-directory"


def test_a_place_where_no_directory_can_be_is_one_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RankupError, match="cannot make the snapshots directory"):
        Saver(tmp_path / "file" / "snapshots", ALONE)


def test_two_runs_on_one_directory_are_an_error_that_names_the_other(tmp_path):
    with Saver(tmp_path, ALONE):
        with pytest.raises(
            RankupError, match=rf"another run already saves to .*: process {os.getpid()} on "
        ) as error:
            Saver(tmp_path, ALONE, patience=0)
        assert error.value.code == "directory-in-use"
    Saver(tmp_path, ALONE, patience=0).close()


def hold(root: Path, entered) -> None:
    Saver(root, ALONE)
    entered.set()
    context.Event().wait()


def test_a_run_that_was_killed_holds_nothing(tmp_path):
    entered = context.Event()
    other = context.Process(target=hold, args=(tmp_path, entered))
    other.start()
    try:
        assert entered.wait(60)
        with pytest.raises(RankupError, match=f"process {other.pid} on"):
            Saver(tmp_path, ALONE, patience=0)
    finally:
        other.kill()
        other.join()
        other.close()
    Saver(tmp_path, ALONE).close()


def test_a_child_that_outlives_the_run_does_not_hold_its_directory(tmp_path):
    saver = Saver(tmp_path, ALONE)
    (reading, writing), (told, tell) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:  # as a data loader's worker: it only waits
        os.close(writing)
        os.write(tell, b"x")
        os.read(reading, 1)
        os._exit(0)
    os.close(reading)
    os.close(tell)
    try:
        assert os.read(told, 1)
        os.close(told)
        saver.close()
        Saver(tmp_path, ALONE, patience=0).close()
    finally:
        os.close(writing)
        os.waitpid(child, 0)


def test_a_failure_lets_go_of_the_directory(tmp_path):
    with pytest.raises(ZeroDivisionError), Saver(tmp_path, ALONE):
        _ = 1 / 0
    Saver(tmp_path, ALONE, patience=0).close()
    assert entries(tmp_path) == []
