"""What cannot be read, written or exported is one error that says so, and nothing is changed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import torch

from rankup.errors import RankupError
from rankup.snapshots import disk, manifest
from rankup.snapshots.export import export
from rankup.snapshots.layout import MANIFEST, entries, find_entry
from rankup.snapshots.saver import Saver
from rankup.snapshots.state import SnapshotState
from snapshot_faults import ALONE, resumed, saved, state


def test_a_directory_without_a_snapshot(tmp_path: Path):
    with pytest.raises(RankupError, match="no snapshot found") as error:
        find_entry(tmp_path)
    assert error.value.code == "no-snapshot"


def test_a_disk_that_fails_leaves_the_snapshot_before(tmp_path: Path):
    """EIO: neither full nor read-only. The training gets the error with the next save, or at its end."""
    saved(tmp_path, 1)

    def fails(what: str, path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    disk.before = fails
    try:
        with pytest.raises(RankupError) as error, Saver(tmp_path, ALONE) as saver:
            saver.save(2, state(2))
    finally:
        disk.before = None
    assert error.value.code == "snapshot-not-written"
    assert resumed(tmp_path) == 1


def test_a_snapshot_that_may_not_be_read_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Root may read everything: the kernel's answer is made up here."""
    saved(tmp_path, 1)
    (entry,) = entries(tmp_path)

    def denied(folder: Path, part: int, parts: int) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder / MANIFEST))

    monkeypatch.setattr(manifest, "_verify", denied)
    with pytest.raises(RankupError) as error:
        manifest.verify(entry.path)
    assert error.value.code == "unreadable-snapshot"
    assert MANIFEST in error.value.context and "Permission denied" in error.value.context


def test_a_dtype_that_this_torch_does_not_have(tmp_path: Path):
    from rankup.snapshots.shards import dtype_of

    assert dtype_of("bfloat16") is torch.bfloat16
    for name in ("float3", "nn"):  # the second is something else in torch
        with pytest.raises(RankupError) as error:
            dtype_of(name)
        assert error.value.code == "unknown-dtype"


def test_a_dtype_that_safetensors_does_not_have_leaves_no_file(tmp_path: Path):
    tensors = {"model": {"weight": torch.zeros(2, dtype=torch.complex128)}}
    with Saver(tmp_path, ALONE, asynchronous=False) as saver:
        saver.save(1, SnapshotState(tensors=tensors, rank_state={}, metadata={}))
    (entry,) = entries(tmp_path)
    out = tmp_path / "model.safetensors"
    with pytest.raises(RankupError) as error:
        export(entry, manifest.verify(entry.path), out)
    assert error.value.code == "dtype-not-exportable"
    assert not out.exists()
