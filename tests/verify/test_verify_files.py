"""Files that a script writes: noted before they change, compared by content, and put back as they were."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import numpy
import torch

from rankup.runtime.tracing.written_files import contents, written
from rankup.verify.files import ScriptFiles, clocklike, other_files

# A script whose files are watched, as `rankup.init` does it.
WATCH = """\
import os, shutil, sys
from pathlib import Path
from rankup.runtime.tracing.written_files import WrittenFiles
files = WrittenFiles(Path(os.environ["PROOF"]), Path(os.environ["PROOF"], "trace-01"), 0)
sys.addaudithook(files.hear)
"""
SCRIPT = """\
Path("read.txt").read_text()
Path("old.txt").write_text("new")
Path("moved.txt").rename("there.txt")
Path("gone.txt").unlink()
with open("grown.txt", "a") as file:
    file.write("more")
os.makedirs("made/deep")
Path("made/deep/part").write_text("1")
os.replace("made/deep/part", "made/deep/whole")
os.makedirs("draft")
Path("draft/model").write_text("3")
Path("draft").rename("final")
os.write(os.open("by-number", os.O_CREAT | os.O_WRONLY), b"2")
Path("runs", "log").write_text("verify's own")
"""
BEFORE = {"read.txt": "r", "old.txt": "old", "moved.txt": "m", "gone.txt": "g", "grown.txt": "some"}


def run_script(folder: Path, text: str) -> None:
    proof = folder / "runs"
    (proof / "trace-01").mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "PROOF": str(proof)}
    subprocess.run([sys.executable, "-c", WATCH + text], cwd=folder, env=env, check=True)


def files_of(folder: Path) -> dict[str, str]:
    """Of the script, by name; folders as ""."""
    paths = [path for path in folder.rglob("*") if path.relative_to(folder).parts[0] != "runs"]
    return {str(path.relative_to(folder)): path.read_text() if path.is_file() else "" for path in paths}


def test_everything_that_python_changes_is_noted_and_put_back(tmp_path: Path):
    for name, text in BEFORE.items():
        (tmp_path / name).write_text(text)
    with ScriptFiles(tmp_path / "runs", sys.executable):
        run_script(tmp_path, SCRIPT)
        names = {str(Path(path).relative_to(tmp_path.resolve())) for path in written(tmp_path / "runs")}
        assert names == {
            *("old.txt", "moved.txt", "there.txt", "gone.txt", "grown.txt", "by-number"),
            *("made/deep/part", "made/deep/whole", "draft/model", "final"),
        }
        assert files_of(tmp_path)["old.txt"] == "new"
    assert files_of(tmp_path) == BEFORE


def test_each_training_finds_what_the_first_one_found(tmp_path: Path):
    count = "Path('n').write_text(str(int(Path('n').read_text()) + 1) if Path('n').exists() else '1')\n"
    with ScriptFiles(tmp_path / "runs", sys.executable) as files:
        digests = []
        for _ in range(2):
            run_script(tmp_path, count)
            digests.append(files.after_training())
        assert digests[0] == digests[1] != {}
        run_script(tmp_path, count + count)  # as a killed training that goes on
        assert other_files(*digests, files.after_training()) == list(digests[0])
    assert files_of(tmp_path) == {}


def test_a_script_that_writes_nothing_costs_no_process(tmp_path: Path):
    assert ScriptFiles(tmp_path, "no-such-python").after_training() == {}


def test_what_torch_saved_is_compared_by_its_values(tmp_path: Path):
    name = "".join(["we", "ight"])  # another object than the literal: pickle writes it again
    torch.save({"weight": torch.ones(2), "of": ["weight"]}, tmp_path / "a.pt")
    torch.save({name: torch.ones(2), "of": ["weight"]}, tmp_path / "b.pt")
    torch.save({"weight": torch.zeros(2), "of": ["weight"]}, tmp_path / "c.pt")
    a, b, c = (contents(tmp_path / f"{name}.pt") for name in "abc")
    assert a == b != c
    assert (a["weight"], a["of"]) != (c["weight"], c["of"]) == (c["weight"], a["of"])  # each part by itself
    assert contents(tmp_path / "nowhere") == {}


class Settings:  # the one who compares cannot import it
    def __init__(self, rate: float) -> None:
        self.rate = rate


def test_parts_of_a_checkpoint_that_are_no_tensors_are_compared_by_their_values(tmp_path: Path):
    for name, rate in (("a", 0.1), ("b", 0.1), ("c", 0.2)):
        numbers = numpy.random.RandomState(1).get_state()
        words = argparse.Namespace(rate=rate)
        torch.save({"numbers": numbers, "settings": Settings(rate), "words": words}, tmp_path / f"{name}.pt")
    a, b, c = (contents(tmp_path / f"{name}.pt") for name in "abc")
    assert a == b and a.keys() == {"numbers", "settings", "words"}
    assert [name for name in a if a[name] != c[name]] == ["settings", "words"]


def test_a_folder_that_was_renamed_into_place_is_compared_by_what_is_in_it(tmp_path: Path):
    for name, text in (("a", "1"), ("b", "1"), ("c", "2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model").write_text(text)
    a, b, c = (contents(tmp_path / name) for name in "abc")
    assert a == b != c


def test_files_that_differ_without_a_kill_are_not_compared():
    first = {"log": "a", "best": "b", "removed": ""}
    again = {"log": "c", "best": "b", "removed": ""}
    assert clocklike(first, again) == ["log"]
    assert other_files(first, again, {"log": "d", "best": "b"}) == []
    assert other_files(first, again, {"log": "d"}) == ["best"]
