"""What the disk, or somebody, did to a snapshot: it is never loaded, the one before it is, and nothing is deleted."""

from __future__ import annotations

import io
import json
import os
import shutil
import zipfile

import pytest
import torch

from rankup.core import shell
from rankup.errors import RankupError
from rankup.snapshots import disk
from rankup.snapshots.layout import MANIFEST, SUMS, VALUES, damaged, entries
from rankup.snapshots.manifest import read_sums, sha256, sums_text
from rankup.snapshots.saver import Saver
from snapshot_faults import ALONE, flip, loaded, resumed, saved, tensors

FILES = ["tensors-0.bin", "states-0.bin", VALUES, MANIFEST, SUMS]


@pytest.fixture
def root(tmp_path):
    return saved(tmp_path / "snapshots", 1, 2)


def signed(folder):
    """Make the hashes fit the files again, as somebody could who means harm."""
    sums = {name: sha256(folder / name) for name in read_sums(folder)}
    (folder / SUMS).write_text(sums_text(sums))


def edited(folder, **changes):
    said = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**said, **changes}))
    signed(folder)


def halve(path):
    os.truncate(path, path.stat().st_size // 2)


def to_folder(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda p: flip(p, 0), id="first bit"),
        pytest.param(lambda p: flip(p, 8 * p.stat().st_size - 3), id="late bit"),
        pytest.param(halve, id="half"),
        pytest.param(lambda p: os.truncate(p, 0), id="empty"),
        pytest.param(lambda p: p.write_bytes(p.read_bytes() + b"x"), id="longer"),
        pytest.param(lambda p: p.unlink(), id="missing"),
    ],
)
def test_a_damaged_file_makes_the_one_before_it_the_newest(root, file, damage):
    damage(root / "step-2" / file)
    assert resumed(root) == 1
    assert [entry.name for entry in entries(root)] == ["step-1"]
    assert [path.name for path in damaged(root)] == ["step-2.damaged"]


def test_sums_that_lack_a_whole_line_are_no_proof(root):
    path = root / "step-2" / SUMS
    path.write_text("".join(line for line in path.read_text().splitlines(True) if "tensors" not in line))
    assert resumed(root) == 1


def test_everybody_can_check_the_sums(root):
    assert set(read_sums(root / "step-2")) == set(FILES) - {SUMS}
    assert shell.run(["sha256sum", "--check", "--strict", SUMS], cwd=root / "step-2").code == 0
    flip(root / "step-2" / MANIFEST, 8)
    assert shell.run(["sha256sum", "--check", "--strict", SUMS], cwd=root / "step-2").code == 1


def test_a_name_that_is_taken_by_an_earlier_damage_gets_a_number(root):
    flip(root / "step-2" / VALUES, 5)
    assert resumed(root) == 1
    saved(root, 2)
    flip(root / "step-2" / VALUES, 5)
    assert resumed(root) == 1
    assert [path.name for path in damaged(root)] == ["step-2.damaged", "step-2.damaged-2"]


def test_with_every_snapshot_damaged_a_run_neither_begins_anew_nor_changes_anything(root):
    for step in (1, 2):
        flip(root / f"step-{step}" / "tensors-0.bin", 77)
    for _ in range(2):
        with pytest.raises(
            RankupError, match=r"every snapshot of this run is damaged: step-2: the SHA-256 of tensors"
        ) as error:
            resumed(root)
        assert error.value.code == "no-good-snapshot"
    assert [entry.step for entry in entries(root)] == [1, 2]


@pytest.mark.parametrize("target", ["step-1", "step-7", None])
def test_a_latest_that_is_stale_dangling_or_missing_misleads_nobody(root, target):
    (root / "latest").unlink()
    if target:
        (root / "latest").symlink_to(target)
    assert resumed(root) == 2


def test_what_a_killed_run_left_half_written_is_cleared_and_what_is_not_ours_is_not(root):
    shutil.copytree(root / "step-2", root / "step-3.tmp")
    (root / "latest.tmp").symlink_to("step-3")
    (root / "notes.txt").write_text("mine")
    (root / "step-4").write_text("a file")
    assert resumed(root) == 2
    assert {path.name for path in root.iterdir()} == {
        "step-1", "step-2", "latest", ".lock", "notes.txt", "step-4",
    }  # fmt: skip


def test_a_file_beside_those_of_the_snapshot_is_no_damage(root):
    (root / "step-2" / ".nfs0001").write_text("")
    assert resumed(root) == 2


def test_another_format_version_is_an_error_and_not_a_damage(root):
    edited(root / "step-2", format=1)
    with pytest.raises(RankupError, match="has format 1, but this version of rankup reads format 3") as error:
        resumed(root)
    assert error.value.code == "other-format"
    assert [entry.step for entry in entries(root)] == [1, 2]


def test_a_manifest_that_is_signed_but_makes_no_sense_is_a_damage(root):
    edited(root / "step-2", tensors={"x": {}})
    assert resumed(root) == 1


class Harm:
    def __reduce__(self):
        return (os.mkdir, ("harm",))


@pytest.mark.parametrize("file", [VALUES, "states-0.bin"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_pickle_with_code_in_it_is_refused_and_not_run(root, file, whole, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    out = io.BytesIO()
    torch.save(Harm() if whole else {"model": {"weight": Harm()}}, out)
    (root / "step-2" / file).write_bytes(out.getvalue())
    edited(root / "step-2", files={
        name: (root / "step-2" / name).stat().st_size for name in FILES if name not in (MANIFEST, SUMS)
    })  # fmt: skip
    with Saver(root, ALONE) as saver:
        found = saver.newest()
        assert found is not None
        with pytest.raises(RankupError, match="it could run code") as error:
            loaded(found)
    assert error.value.code == "unsafe-snapshot"
    assert not (tmp_path / "harm").exists()


def test_no_file_of_a_snapshot_is_read_by_a_plain_unpickler(root):
    """The index of tensors is JSON, and every pickle is in a zip file of torch.save, read with weights_only."""
    for file in FILES:
        content = (root / "step-2" / file).read_bytes()
        assert not content.startswith(b"\x80")
        assert zipfile.is_zipfile(root / "step-2" / file) == (file in (VALUES, "states-0.bin"))


def test_a_file_that_shrinks_after_it_was_verified_is_an_error(root):
    with Saver(root, ALONE) as saver:
        found = saver.newest()
        assert found is not None
        os.truncate(found.path / "tensors-0.bin", 10)
        with pytest.raises(RankupError, match="was truncated after verification"):
            found.load_tensors(tensors(0))


def test_a_snapshot_in_which_a_file_is_a_directory_is_set_aside(root):
    to_folder(root / "step-2" / VALUES)
    assert resumed(root) == 1


def test_a_good_snapshot_is_found_where_a_damaged_one_cannot_be_renamed(root, monkeypatch):
    flip(root / "step-2" / VALUES, 5)

    def refuse(what, path):
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr(disk, "before", refuse)
    assert resumed(root) == 1
    assert [entry.step for entry in entries(root)] == [1, 2]
