"""``rankup scale`` as a user meets it: real runs of a few images, and mistakes found before any run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from rankup.cli.app import main
from rankup.workloads.data.idx import write_idx

pytestmark = pytest.mark.usefixtures("warm_python")


@pytest.fixture
def images(tmp_path) -> Path:
    """A data set of 33 training and 7 test images."""
    folder = tmp_path / "images"
    folder.mkdir()
    random = torch.Generator().manual_seed(1)
    for part, count in (("train", 33), ("t10k", 7)):
        pixels = torch.randint(0, 256, (count, 28, 28), dtype=torch.uint8, generator=random)
        write_idx(folder / f"{part}-images-idx3-ubyte", pixels)
        write_idx(folder / f"{part}-labels-idx1-ubyte", torch.arange(count, dtype=torch.uint8) % 10)
    return folder


def command(folder: Path, *args: str) -> list[str]:
    return [sys.executable, "-m", "rankup", "scale", "mnist-cnn", "--runs-root", str(folder / "runs"), *args]


def tiny(images: Path, *args: str) -> list[str]:
    work = ["--data", str(images), "--epochs", "1", "--global-batch", "16", "--set", "dropout=off"]
    return command(images.parent, *work, "--threads", "1", "--device", "cpu", *args)


def run(tokens: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(tokens, capture_output=True, text=True, timeout=120)


def test_a_study_ends_with_the_table_and_its_results_beside_the_runs(images):
    done = run(tiny(images, "--repeats", "1"))
    busy = "busy-machine" in done.stdout  # other tests may run beside this one
    assert done.returncode == (1 if busy else 0), done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("run ")]
    assert lines[0] == "run 1 of 4: 1 process, warm-up …"
    assert lines[3] == "run 4 of 4: 2 processes, repeat 1 …"
    assert len([line for line in done.stderr.splitlines() if line.startswith("  epoch 1/1  loss ")]) >= 2
    rows = [line.split()[:6] for line in done.stdout.splitlines() if line.startswith(("none", "ddp"))]
    assert rows == [["none,", "1", "process", "1", "1", "1"], ["ddp,", "2", "processes", "2", "1", "1"]]
    assert "too few runs for a ratio" in done.stdout
    path = Path(done.stdout.splitlines()[-1].split(maxsplit=1)[1])
    results = json.loads(path.read_text())
    assert [row["processes"] for row in results["rows"]] == [1, 2]
    runs = [run for one in results["configurations"] for run in one["runs"]]
    assert [run["samples"] for run in runs] == [33, 33]
    assert all(Path(run["path"]).parent == path.parent.parent for run in runs)
    assert len(list(path.parent.parent.iterdir())) == 4 + 1


def test_data_that_is_not_there_fails_in_the_warm_up_with_the_reason_shown(images):
    nothing = str(images / "nothing")
    done = run(tiny(images, "--data", nothing, "--json"))
    assert done.returncode == 2
    error = json.loads(done.stdout)
    assert error["message"] == f"the warm-up of 1 process failed: {nothing!r} is not a directory"
    assert error["context"] == f"--data {nothing}"
    assert done.stderr == "run 1 of 8: 1 process, warm-up …\n"


def test_ctrl_c_ends_the_study_and_its_processes(images):
    runs = images.parent / "runs" / "mnist-cnn"
    study = subprocess.Popen(
        tiny(images, "--epochs", "100000"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while study.poll() is None and not trains(runs, 3):
        time.sleep(0.05)
    study.send_signal(signal.SIGINT)
    out, err = study.communicate(timeout=60)
    assert study.returncode == 130, err
    assert "ended by SIGINT after 2 of 8 runs" in err
    assert "Traceback" not in err
    assert out == ""
    assert not list(runs.glob("scale-*"))


def trains(runs: Path, number: int) -> bool:
    """Whether the run of that number has ended its first epoch."""
    folders = sorted(runs.iterdir()) if runs.exists() else []
    return len(folders) >= number and (folders[number - 1] / "records" / "epochs.jsonl").exists()


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["--global-batch", "1"], "global-batch-too-small"),
        (["--repeats", "0"], "bad-repeats"),
        (["--nproc-per-node", "1,x"], "bad-process-count"),
        (["--nproc-per-node", "1,1"], "repeated-process-count"),
        (["--nproc-per-node", "2"], "nothing-to-compare"),
        (["--precision", "fp8"], "bad-option"),
        (["--set", "dropout"], "bad-setting"),
        (["--name", "../elsewhere"], "bad-name"),
        (["--threads", "0"], "bad-threads"),
    ],
)
def test_a_mistake_is_one_error_before_anything_runs(args, code, tmp_path, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["scale", "mnist-cnn", "--runs-root", str(tmp_path / "runs"), *args])
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert f"[{code}]" in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert not list(tmp_path.glob("runs/*/*"))


def test_an_unknown_workload_is_named(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["scale", "mnist-cn", "--runs-root", str(tmp_path)])
    assert "did you mean 'mnist-cnn'?" in capsys.readouterr().err
