"""Files that a script writes: noted before they change, compared by content, and put back as they were."""

from __future__ import annotations

import argparse
import io
import json
import os
import pickle
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from rankup.errors import RankupError
from rankup.runtime.tracing.written_files import contents, written
from rankup.verify.files import PART, Digests, ScriptFiles, clocklike, other_aside, other_files
from rankup.verify.two_files import RESUMED, UNINTERRUPTED

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
            *("made/deep/part", "made/deep/whole", "draft/model", "final/model"),
        }
        assert files_of(tmp_path)["old.txt"] == "new"
    assert files_of(tmp_path) == BEFORE


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_between_two_attempts_puts_the_files_back_and_says_so(
    tmp_path: Path, number: signal.Signals
):
    tmp_path.joinpath("old.txt").write_text("old")
    signal.signal(
        number, signal.SIG_DFL
    )  # a loop that another test has left may still have its handler there
    with pytest.raises(RankupError) as ended, ScriptFiles(tmp_path / "runs", sys.executable):  # noqa: PT012
        run_script(tmp_path, 'Path("old.txt").write_text("new")')
        os.kill(os.getpid(), number)
    assert (ended.value.code, ended.value.exit_code) == ("interrupted", 128 + number)
    assert files_of(tmp_path) == {"old.txt": "old"}
    assert signal.getsignal(number) is signal.SIG_DFL


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("resumed", ["1\n1\n", "1\n2\n", None])
def test_both_copies_of_a_file_that_differs_stay_in_the_proofs_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resumed: str | None
):
    monkeypatch.chdir(tmp_path)
    with ScriptFiles(tmp_path / "runs", sys.executable) as files:
        digests = []
        for copies, text in ((UNINTERRUPTED, "1\n1\n"), ("", "1\n1\n"), (RESUMED, resumed)):
            run_script(
                tmp_path, f"Path('best').write_text('x')\nPath('log').write_text({text!r})\n" if text else ""
            )
            digests.append(files.after_training(copies))
        different = resumed != "1\n1\n"
        if different:
            first, *_ = files.two_of(*digests)[-1:]
            said = (
                "line 2 is '2' after a resume, and '1' without one"
                if resumed
                else "it is not there after a resume"
            )
            assert first.where == said
    kept = sorted(str(path.relative_to(tmp_path / "runs")) for path in tmp_path.rglob("written/*/log"))
    both = ["written/resumed/log", "written/uninterrupted/log"]
    assert kept == (both[0 if resumed else 1 :] if different else [])


def test_a_script_that_writes_nothing_costs_no_process(tmp_path: Path):
    assert ScriptFiles(tmp_path, "no-such-python").after_training() == {}


def test_what_torch_saved_is_compared_by_its_values(tmp_path: Path):
    name = "".join(["we", "ight"])  # another object than the literal: pickle writes it again
    torch.save({"weight": torch.ones(2), "of": ["weight"]}, tmp_path / "a.pt")
    torch.save({name: torch.ones(2), "of": ["weight"]}, tmp_path / "b.pt")
    torch.save({"weight": torch.zeros(2), "of": ["weight"]}, tmp_path / "c.pt")
    a, b, c = (contents(tmp_path / f"{name}.pt") for name in "abc")
    assert a == b != c
    assert [name for name in a if a[name] != c[name]] == ["weight"]  # each value by itself
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
    assert a == b and a.keys() == {"", "numbers", "settings.rate", "words.rate"}
    assert [name for name in a if a[name] != c[name]] == ["settings.rate", "words.rate"]


class Unnamed:
    pass


def test_keys_of_classes_that_are_not_here_have_the_same_names_in_each_process(tmp_path: Path):
    for name in "ab":
        values = {Settings(0.1): 1, (Settings(0.2), "x"): 2, Unnamed(): 3, Unnamed(): 4}
        torch.save(values, tmp_path / f"{name}.pt")
    a, b = (contents(tmp_path / f"{name}.pt") for name in "ab")
    assert a == b
    assert a.keys() == {"", "Settings(0.1)", "(Settings(0.2), 'x')", "Unnamed()", "Unnamed() 3"}


def of(path: Path) -> Digests:
    """As verify has it of one file."""
    return {
        f"checkpoint{PART}{name}" if name else "checkpoint": digest for name, digest in contents(path).items()
    }


def checkpoint(**other: Any) -> dict[str, Any]:
    numbers = numpy.random.RandomState(1).get_state()
    generators = {
        "torch": torch.zeros(5056, dtype=torch.uint8),
        "numpy": numbers,
        "python": random.Random(1).getstate(),
    }
    words = argparse.Namespace(start_epoch=0, resume="")
    best = {"best": 0.5, "history": [1.0, 2.0], "path": "run-1/best.pt"}
    return {"weight": torch.ones(2), "words": words, "generators": generators, "kept": best, **other}


GENERATORS = {"torch": torch.ones(5056, dtype=torch.uint8), "numpy": numpy.random.RandomState(2).get_state()}
KEPT = {"best": 0.5, "history": [1.0, 2.0], "path": "run-1/best.pt"}


@pytest.mark.parametrize(
    ("other", "named", "aside"),
    [
        ({}, [], []),
        ({"weight": torch.zeros(2)}, ["checkpoint [weight]"], []),
        ({"kept": {**KEPT, "best": 0.4}}, ["checkpoint [kept.best]"], []),
        ({"kept": {**KEPT, "history": [1.0, 2.0, 2.0]}}, ["checkpoint [kept.history.2]"], []),
        ({"kept": {**KEPT, "history": [1.0]}}, ["checkpoint [kept.history.1]"], []),
        ({"kept": {**KEPT, "path": "run-2/best.pt"}}, [], ["checkpoint [kept.path]"]),
        (
            {"words": argparse.Namespace(start_epoch=3, resume="last.pt")},
            [],
            ["checkpoint [words.start_epoch and 1 more]"],
        ),
        (
            {"generators": {**GENERATORS, "python": random.Random(1).getstate()}},
            [],
            ["checkpoint [generators.torch and 1 more]"],
        ),
    ],
)
@pytest.mark.parametrize("save", [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))])
def test_tensors_and_numbers_of_a_checkpoint_count_and_how_it_was_started_is_named(
    tmp_path: Path, other: dict[str, Any], named: list[str], aside: list[str], save: Any
):
    for name, value in (("a", checkpoint()), ("b", checkpoint()), ("c", checkpoint(**other))):
        save(value, tmp_path / name)
    digests = [of(tmp_path / name) for name in "abc"]
    assert other_files(*digests) == named
    assert other_aside(*digests) == aside
    # The file that is missing is another one, whatever is in it.
    assert len(other_files(*digests[:2], {})) == 1


def calls(module: str, name: str, *values: Any) -> bytes:
    """A pickle that calls ``module.name(*values)``, whether that is found or not."""
    words = b"".join(b"\x8c" + bytes([len(word)]) + word.encode() for word in (module, name))
    return b"\x80\x04" + words + b"\x93" + pickle.dumps(values, 2)[2:-1] + b"R."


class Nested:
    """As torch saves it: in a zip of torch's, or within the bytes of a storage."""

    def __init__(self, function: Any, *values: Any) -> None:
        self.made = function, values

    def __reduce__(self) -> Any:
        return self.made


@pytest.mark.parametrize(
    "content",
    [
        lambda path: calls("torch.serialization", "os.mkdir", path),
        lambda path: calls("os", "mkdir", path),
        lambda path: calls("numpy", "memmap", path, "uint8", "w+", 0, (1,)),
        lambda path: calls("torch.storage", "_load_from_bytes", saved(Nested(os.mkdir, path))),
        lambda path: saved(Nested(os.mkdir, path)),
        lambda path: saved(Nested(os.mkdir, path), _use_new_zipfile_serialization=False),
    ],
)
def test_a_file_that_is_compared_runs_nothing(tmp_path: Path, content: Any):
    (tmp_path / "file").write_bytes(content(str(tmp_path / "made")))
    assert contents(tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_name_with_a_dot_reaches_nothing_behind_a_known_function(tmp_path: Path):
    module = calls("torch._utils", "_rebuild_tensor.__globals__.get", "torch")
    state = pickle.dumps({"changed_by_a_file": True}, 2)[2:-1]
    (tmp_path / "file").write_bytes(module[:-1] + state + b"b.")
    assert contents(tmp_path / "file")
    assert not hasattr(torch, "changed_by_a_file")


def saved(value: Any, **options: Any) -> bytes:
    out = io.BytesIO()
    torch.save(value, out, **options)
    return out.getvalue()


def test_arrays_and_generators_of_numpy_in_a_pickle_are_values(tmp_path: Path):
    for name, number in (("a", 1.0), ("b", 2.0)):
        thing = {
            "array": numpy.full(3, number),
            "one": numpy.float32(number),
            "draws": numpy.random.default_rng(1),
        }
        (tmp_path / name).write_bytes(pickle.dumps(thing))
    a, b = (contents(tmp_path / name) for name in "ab")
    assert a.keys() == {"", "array", "one", "draws"}
    assert [name for name in a if a[name] != b[name]] == ["array", "one"]


def test_a_time_in_a_file_leaves_out_itself_alone(tmp_path: Path):
    for name, seconds, loss in (("a", 1.5, 0.5), ("b", 1.6, 0.5), ("c", 1.7, 0.4)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"seconds": seconds, "loss": loss}))
    a, b, c = (of(tmp_path / f"{name}.json") for name in "abc")
    assert clocklike(a, b) == ["checkpoint [seconds]"]
    assert other_files(a, b, c) == ["checkpoint [loss]"]


def test_several_pickles_in_one_file_all_count(tmp_path: Path):
    for name, last in (("a", 1), ("c", 2)):
        (tmp_path / name).write_bytes(pickle.dumps({"n": 0}) + pickle.dumps({"n": last}))
    assert other_files(of(tmp_path / "a"), of(tmp_path / "a"), of(tmp_path / "c")) == ["checkpoint [1.n]"]


def test_files_that_differ_without_a_kill_are_not_compared():
    first = {"log": "a", "best": "b", "removed": ""}
    again = {"log": "c", "best": "b", "removed": ""}
    assert clocklike(first, again) == ["log"]
    assert other_files(first, again, {"log": "d", "best": "b"}) == []
    assert other_files(first, again, {"log": "d"}) == ["best"]


# What h5py does: its library opens the file itself, so Python reports nothing.
H5PY = """\
import ctypes

class File:
    def __init__(self, name, mode="r"):
        libc = ctypes.CDLL(None)
        self._libc, self._file = libc, libc.creat(str(name).encode(), 0o644) if mode == "w" else -1
    def write(self, data):
        self._libc.write(self._file, data, len(data))
"""
SAVES_WITH_H5PY = """\
import os, sys
import torch
import h5py, sqlite3

torch.manual_seed(0)
net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
done = 0
if os.path.exists("last.h5"):
    text = open("last.h5", "rb").read()
    done = text.count(b"x") - 4096
    assert done >= 0, "cut"
    net.load_state_dict(torch.load("net.pt"))
for step in range(done, 8):
    net(torch.ones(4)).sum().backward()
    opt.step()
    opt.zero_grad()
    torch.save(net.state_dict(), "net.tmp")
    os.replace("net.tmp", "net.pt")
    h5py.File("last.h5", "w").write(b"x" * (4096 + step + 1))
    with sqlite3.connect("log.db") as log:
        log.execute("create table if not exists steps (n integer primary key)")
        log.execute("insert or ignore into steps values (?)", (step,))
"""


def test_what_h5py_and_sqlite_write_is_noted_and_put_back(tmp_path: Path):
    (tmp_path / "runs" / "trace-01").mkdir(parents=True)
    (tmp_path / "h5py.py").write_text(H5PY)
    script = """
import h5py, sqlite3
from rankup.runtime.tracing.saves import SAVES
from rankup.runtime.tracing.written_files import _wrap_hdf5
_wrap_hdf5(files)
h5py.File("last.h5", "w").write(b"12")
sqlite3.connect("log.db").execute("create table steps (n)")
assert SAVES.made == [("last.h5", 2)]  # a database is no save: it is never cut
"""
    with ScriptFiles(tmp_path / "runs", sys.executable):
        run_script(tmp_path, script)
        names = {Path(path).name for path, digest in written(tmp_path / "runs").items() if digest}
        assert names == {"last.h5", "log.db"}
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {"h5py.py", "runs"}


@pytest.mark.campaign
def test_a_save_of_h5py_is_cut_and_put_back_and_so_is_a_database(tmp_path: Path):
    (tmp_path / "h5py.py").write_text(H5PY)
    (tmp_path / "script.py").write_text(SAVES_WITH_H5PY)
    words = [
        sys.executable,
        "-m",
        "rankup",
        "verify",
        "--json",
        "--threads",
        "1",
        "--kills",
        "3",
        "script.py",
    ]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    answer = json.loads(done.stdout)
    assert [finding["code"] for finding in answer["findings"]] == ["save-not-atomic"], (
        done.stdout + done.stderr
    )
    assert "half of last.h5" in answer["findings"][0]["why"]
    left = {path.name for path in tmp_path.iterdir()} - {"__pycache__"}
    assert left == {"h5py.py", "runs", "script.py"}
