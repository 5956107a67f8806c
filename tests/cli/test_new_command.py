"""``rankup new`` writes the job that it is asked for, and nothing that follows from it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from commands import calling
from terminal import shown_on_terminal

call = calling()
OLIVIA = ("--site", "olivia", "--account", "nn9999k", "--time", "24h")
WRITTEN = """\
[job]
script = "train.py"
args = ["--lr", "0.1"]
nodes = 2
gpus_per_node = 4
mem = "100G"
time = "24:00:00"
account = "nn9999k"

[job.env]
OMP_NUM_THREADS = "8"

[site]
name = "olivia"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("RANKUP_SITE", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print(1)\n")
    return tmp_path


def test_the_file_has_what_was_asked_for_alone(capfd, folder):
    sizes = ("--nodes", "2", "--gpus-per-node", "4", "--mem", "100G", "--env", "OMP_NUM_THREADS=8")
    code, out, err = call(capfd, "new", *OLIVIA, *sizes, "train.py", "--lr", "0.1")
    assert code == 0, err
    assert (folder / "job.toml").read_text() == WRITTEN
    assert out.splitlines()[-2:] == [
        "rankup render job.toml    look at its script",
        "rankup submit job.toml    submit it",
    ]


@pytest.mark.parametrize(
    "words",
    [
        (*OLIVIA, "--nodes", "2", "--gpus-per-node", "4", "train.py", "a b"),
        ("--site", "pbs", "--time", "90m", "--module", "", "-m", "train", "--epochs", "3"),
        ("--site", "slurm", "--stage", "data=/big/data", "--stop-before", "5m", "--mem", "", "./train.py"),
        ("--site", "local", "--env", "A=1", "--env", "TOKEN", "--no-exclusive", "bash", "-c", "true"),
    ],
)
def test_its_script_is_the_one_of_the_same_options(capfd, monkeypatch, words):
    monkeypatch.setenv("TOKEN", "secret")
    code, expected, err = call(capfd, "render", *words)
    assert code == 0, err
    assert call(capfd, "new", *words)[0] == 0
    assert call(capfd, "render", "job.toml")[1] == expected


def test_a_file_is_never_overwritten(capfd, folder):
    (folder / "job.toml").write_text("mine")
    code, _, err = call(capfd, "new", "--site", "local", "train.py")
    assert (code, (folder / "job.toml").read_text()) == (2, "mine")
    assert "[job-file-exists]" in err and "rankup render job.toml" in err
    assert call(capfd, "new", "--site", "local", "--out", "other.toml", "train.py")[0] == 0
    assert (folder / "other.toml").exists()


@pytest.mark.parametrize(
    ("words", "code"),
    [((), "no-script"), (("trian.py",), "script-not-found"), (("--time", "x", "train.py"), "bad-time")],
)
def test_a_job_that_is_wrong_writes_nothing(capfd, folder, words, code):
    exit_code, _, err = call(capfd, "new", "--site", "local", *words)
    assert exit_code == 2 and f"[{code}]" in err, err
    assert not (folder / "job.toml").exists()


def test_a_program_gets_an_answer_in_json(capfd, folder):
    _, out, _ = call(capfd, "new", "--json", "--site", "local", "train.py")
    answer = json.loads(out)
    assert answer["file"] == "job.toml" and answer["text"] == (folder / "job.toml").read_text()


def test_on_a_terminal_it_asks_for_what_was_not_given(folder):
    command = [sys.executable, "-m", "rankup", "new", "--gpus-per-node", "4"]
    typed = "train.py --lr 0.1\nolivia\n\n2h\nnn9999k\n"
    code, lines = shown_on_terminal(command, folder, typed=typed)
    assert code == 0, lines
    asked = " ".join(lines)
    assert "site (rankup sites list) [" in asked and "time limit, e.g. 90m or 24h: " in asked
    assert "GPUs per node" not in asked
    text = (folder / "job.toml").read_text()
    assert text.startswith(
        '[job]\nscript = "train.py"\nargs = ["--lr", "0.1"]\nnodes = 1\ngpus_per_node = 4\n'
    )
    assert 'time = "02:00:00"' in text and 'account = "nn9999k"' in text and 'name = "olivia"' in text
