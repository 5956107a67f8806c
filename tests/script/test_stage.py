"""``script/stage.py`` as a node runs it: data to the node's disk and results back, and what each fault says."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

STAGE = files("rankup.script").joinpath("stage.py")


class Node:
    """One node's disk, and the run directory that all nodes see."""

    def __init__(self, tmp_path: Path) -> None:
        self.run, self.disk, self.shared = tmp_path / "run", tmp_path / "disk", tmp_path / "shared place"
        for folder in (self.run, self.disk, self.shared):
            folder.mkdir()
        self.folder = self.disk / "rankup-1"

    def stage(
        self, do: str, *sources: str, back: str = "", node: int = 0, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """On the first node an attempt begins, which knows no reason to end yet."""
        if node == 0:
            (self.run / "why").unlink(missing_ok=True)
        given = {
            **{"PATH": os.environ["PATH"], "RUN": str(self.run), "RANKUP_STAGE": str(self.folder)},
            **{"STAGE_SOURCES": "\n".join(sources), "STAGE_BACK": back},
        }
        return subprocess.run(
            [sys.executable, "-S", str(STAGE), do, str(node)], env=given | env, capture_output=True, text=True
        )

    def why(self) -> str:
        return (self.run / "why").read_text().partition(": ")[2]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def images(folder: Path) -> Path:
    (folder / "a" / "empty").mkdir(parents=True)
    (folder / "a" / "one.bin").write_bytes(b"1" * 5000)
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("a/one.bin")
    (folder / "folder-link").symlink_to("a")
    return folder


def contents(folder: Path) -> dict[str, str]:
    """Each path below ``folder``: what a file holds and whether it can be executed, where a link leads."""
    return {
        str(path.relative_to(folder)): str(path.readlink())
        if path.is_symlink()
        else f"{os.access(path, os.X_OK)} {path.read_text()}"
        if path.is_file()
        else "folder"
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize("ends", [".tar", ".tar.gz", ".tar.zst", ".squashfs", ""])
def test_a_folder_and_each_kind_of_archive_become_the_same_folder(node: Node, ends: str):
    data = images(node.shared / "images")
    source = node.shared / f"data{ends}"
    needs = {".tar.zst": "zstd", ".squashfs": "mksquashfs"}.get(ends)
    if needs and not shutil.which(needs):
        pytest.skip(f"{needs} is not installed")
    if ends == ".squashfs":
        subprocess.run(
            ["mksquashfs", data, source, "-quiet", "-no-progress"], check=True, capture_output=True
        )
    elif ends:
        option = {".tar": [], ".tar.gz": ["-z"], ".tar.zst": ["--use-compress-program=zstd"]}[ends]
        subprocess.run(["tar", "-C", data, *option, "-cf", source, "."], check=True)
    else:
        source = data
    done = node.stage("in", f"data={source}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert contents(node.folder / "data") == contents(data)
    assert (
        " kB/s), sha256 " in done.stdout
        or " B/s), sha256 " in done.stdout
        or " MB/s), sha256 " in done.stdout
    )
    assert {path.name for path in node.folder.iterdir()} == {".staged", "data"}
    assert node.folder.stat().st_mode & 0o777 == 0o700


def test_a_file_is_copied_with_its_name_in_the_job_and_its_sum_in_the_run_directory(node: Node):
    (node.shared / "words.bin").write_bytes(b"words")
    assert node.stage("in", f"words={node.shared / 'words.bin'}").returncode == 0
    assert (node.folder / "words").read_bytes() == b"words"
    (line,) = (node.run / "stage" / "words.sha256").read_text().splitlines()
    assert line == f"{hashlib.sha256(b'words').hexdigest()}  {node.shared / 'words.bin'}"


def test_what_a_killed_attempt_has_left_whole_is_used_and_what_it_left_in_pieces_is_not(node: Node):
    data = images(node.shared / "images")
    (node.shared / "words").write_text("new words")
    node.stage("in", f"data={data}")
    node.folder.joinpath("words").write_text("half")
    done = node.stage("in", f"data={data}", f"words={node.shared / 'words'}")
    assert "data: found, sha256" in done.stdout and "words: found" not in done.stdout
    assert (node.folder / "words").read_text() == "new words"


def test_data_that_changed_after_the_first_attempt_ends_the_job(node: Node):
    words = node.shared / "words"
    words.write_text("old")
    assert node.stage("in", f"words={words}").returncode == 0
    words.write_text("new!")
    assert node.stage("in", f"words={words}").returncode == 1
    assert node.why().startswith(f"stage-changed: {words} is not what the run's first node had")


@pytest.mark.parametrize("kind", ["file", "folder", "missing in folder"])
def test_a_wrong_checksum_beside_the_source_ends_the_job(node: Node, kind: str):
    right, wrong = hashlib.sha256(b"x").hexdigest(), hashlib.sha256(b"y").hexdigest()
    source = node.shared / "data"
    if kind == "file":
        source.write_text("x")
        lines = "{}  anything\n"
    else:
        source.mkdir()
        (source / "a").write_text("x")
        lines = "{}  ./a\n" + (f"{right}  b\n" if kind == "missing in folder" else "")
    sums = source.with_name("data.sha256")
    sums.write_text(lines.format(right if kind == "missing in folder" else wrong))
    assert node.stage("in", f"data={source}").returncode == 1
    assert node.why().startswith("stage-wrong-checksum: ")
    assert not node.folder.joinpath(".staged", "data.json").exists()
    sums.write_text(f"{right}  a\n")
    assert node.stage("in", f"data={source}").returncode == 0


def test_a_missing_source_ends_the_job_before_anything_is_copied(node: Node):
    (node.shared / "words").write_text("x")
    done = node.stage("in", f"words={node.shared / 'words'}", "data=/nowhere/data.tar")
    assert done.returncode == 1 and done.stderr == ""
    assert node.why() == "stage-no-source: there is no '/nowhere/data.tar' here (data)\n"
    assert not node.folder.joinpath("words").exists()


def test_too_little_space_ends_the_job_before_anything_is_copied(node: Node):
    with (node.shared / "large").open("wb") as file:
        file.truncate(shutil.disk_usage(node.disk).free + (1 << 40))  # of no blocks
    done = node.stage("in", f"data={node.shared / 'large'}")
    assert done.returncode == 1 and done.stderr == ""
    assert re.fullmatch(r"stage-no-space: \S+/disk/rankup-1 needs \S+ TB, and has \S+ .B free\n", node.why())
    assert not (node.folder / "data").exists()


def test_an_archive_that_is_none_and_a_disk_that_is_none_are_named(node: Node):
    (node.shared / "data.tar.gz").write_text("no archive")
    assert node.stage("in", f"data={node.shared / 'data.tar.gz'}").returncode == 1
    assert node.why().startswith(f"stage-bad-archive: tar could not unpack {node.shared / 'data.tar.gz'}: ")
    done = node.stage("in", RANKUP_STAGE="/nowhere/rankup-1")
    assert done.returncode == 1
    assert node.why().startswith("stage-no-folder: cannot make /nowhere/rankup-1: ")


def test_the_reason_of_the_node_that_failed_first_stands(node: Node):
    assert node.stage("in", "data=/nowhere/data.tar").returncode == 1
    (node.shared / "data.tar.gz").write_text("cut off, as srun ended this node's tar")
    assert node.stage("in", f"data={node.shared / 'data.tar.gz'}", node=1).returncode == 1
    assert node.why() == "stage-no-source: there is no '/nowhere/data.tar' here (data)\n"


def test_a_disk_that_all_nodes_share_is_named_and_another_nodes_data_is_left_alone(node: Node):
    (node.shared / "words").write_text("x")
    assert node.stage("in", f"words={node.shared / 'words'}").returncode == 0
    (node.folder / ".staged" / "node").write_text("node7")
    assert node.stage("in", f"words={node.shared / 'words'}", node=1).returncode == 1
    assert node.why().startswith(f"stage-shared-disk: {node.folder} is the same directory on node7: ")
    assert node.stage("back", node=1).returncode == 0
    assert (node.folder / "words").read_text() == "x"


def test_an_archive_with_bytes_after_its_end_has_the_checksum_of_all_of_them(node: Node):
    (node.shared / "one").write_text("x")
    archive = node.shared / "data.tar"
    subprocess.run(["tar", "-C", node.shared, "-cf", archive, "one"], check=True)
    archive.write_bytes(archive.read_bytes() + b"more" * 2_000_000)
    done = node.stage("in", f"data={archive}")
    assert done.returncode == 0, done.stdout
    assert (
        hashlib.sha256(archive.read_bytes()).hexdigest() in (node.run / "stage" / "data.sha256").read_text()
    )


def test_results_come_back_by_node_and_are_there_again_in_the_next_attempt(node: Node):
    node.stage("in", back="out/*")
    (node.folder / "out" / "deep").mkdir(parents=True)
    (node.folder / "out" / "deep" / "model.pt").write_text("weights")
    (node.folder / "out" / "last").symlink_to("deep/model.pt")
    (node.folder / "scratch").write_text("not asked for")
    done = node.stage("back", back="out/*", node=1)
    assert done.returncode == 0 and "2 files copied to" in done.stdout, done.stdout + done.stderr
    results = node.run / "results" / "node-1"
    assert contents(results) == {
        "out": "folder", "out/deep": "folder", "out/deep/model.pt": "False weights", "out/last": "deep/model.pt"
    }  # fmt: skip
    assert not node.folder.exists()
    node.stage("in", back="out/*", node=1)
    assert (node.folder / "out" / "last").read_text() == "weights"
    assert node.stage("in", back="out/*", node=0).returncode == 0
    (node.folder / "out" / "deep" / "model.pt").write_text("better weights")
    node.stage("back", back="out/*", node=1)
    assert (results / "out" / "deep" / "model.pt").read_text() == "better weights"


def test_an_environment_of_conda_pack_is_unpacked_for_its_place(node: Node):
    packed = node.shared / "env"
    (packed / "bin").mkdir(parents=True)
    (packed / "bin" / "python").symlink_to(sys.executable)
    (packed / "bin" / "conda-unpack").write_text(
        "import pathlib; (pathlib.Path(__file__).parent / 'done').touch()"
    )
    subprocess.run(["tar", "-C", packed, "-czf", node.shared / "env.tar.gz", "."], check=True)
    assert node.stage("in", f"env={node.shared / 'env.tar.gz'}").returncode == 0
    assert (node.folder / "env" / "bin" / "done").exists()
