"""``rankup train``, as its user types it: records, summary, files, and one error for each mistake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from rankup.core.records import read_records
from rankup.train.options import TrainOptions
from rankup.workloads.data.idx import write_idx

pytestmark = pytest.mark.usefixtures("warm_python")


def train(*args: str | Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rankup", "train", *map(str, args)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, env={**os.environ, **env})


@pytest.fixture
def few_images(tmp_path: Path) -> Path:
    """70 training and 23 test images in the standard files: a class is a bright row."""
    folder = tmp_path / "data"
    folder.mkdir()
    for prefix, count in (("train", 70), ("t10k", 23)):
        labels = torch.arange(count, dtype=torch.uint8) % 10
        images = torch.zeros(count, 28, 28, dtype=torch.uint8)
        images[torch.arange(count), labels.long() * 2 + 4] = 255
        write_idx(folder / f"{prefix}-images-idx3-ubyte.gz", images)
        write_idx(folder / f"{prefix}-labels-idx1-ubyte.gz", labels)
    return folder


@pytest.mark.slow
def test_two_processes_train_and_leave_records_a_summary_and_a_model(tmp_path, few_images):
    done = train(
        "mnist-cnn", "--data", few_images, "--epochs", "2", "--global-batch", "20", "--nproc-per-node", "2",
        "--save-model", "model.pt", "--log-interval", "2", "--log", "tensorboard", "--json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["samples"], summary["test_samples"], summary["world_size"]) == (140, 23, 2)
    run = Path(summary["run"])
    epochs = read_records(run / "records" / "epochs.jsonl", "epoch")
    assert [(e["epoch"], e["samples"], e["steps"]) for e in epochs] == [(1, 70, 4), (2, 70, 4)]
    assert epochs[1]["metrics"]["train_loss"] < epochs[0]["metrics"]["train_loss"]
    (began,) = read_records(run / "records" / "steps.jsonl", "begin")
    assert (began["facts"]["world_size"], began["facts"]["strategy"]) == (2, "ddp")
    for place in ("epoch 1/2  step 2/4", "epoch 1/2  step 4/4", "epoch 2/2  step 2/4"):
        assert place in done.stderr
    assert list((run / "tensorboard").glob("events.*"))
    weights = torch.load(tmp_path / "model.pt", weights_only=True)
    assert weights["conv1.weight"].shape == (32, 1, 3, 3)
    assert (run / "outcome").read_text() == "done\n"
    assert "epoch 2/2" in done.stderr  # stdout is the JSON's


@pytest.mark.repeated
@pytest.mark.parametrize("cut", [(), ("--accumulate", "3")])
def test_a_dry_run_is_one_batch_and_plain_lines_end_with_the_summary(tmp_path, few_images, cut):
    done = train("mnist-cnn", "--data", few_images, "--dry-run", "--global-batch", "30", *cut, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr
    assert "1 epochs of 30 samples" in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines()[-7:]] == [
        "trained", "with", "time", "speed", "devices", "accuracy", "records",
    ]  # fmt: skip


@pytest.mark.slow
def test_the_parts_of_a_step_are_timed_without_advice_for_our_own_loop(tmp_path, few_images):
    """Also where rankup is installed from a clone, and so is not among the libraries."""
    options = TrainOptions(
        "rankup.workloads.mnist_cnn:MnistCnn",
        "mnist-cnn",
        data=str(few_images),
        global_batch=20,
        breakdown=True,
    )
    command = [sys.executable, "-m", "rankup.train", options.to_json()]
    run = tmp_path / "run"
    run.mkdir()
    env = {**os.environ, "RANKUP_RUN_DIR": str(run)}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    (timed,) = read_records(run / "records" / "steps.jsonl", "breakdown")
    assert timed["parts"]["step"] > timed["parts"]["compute"] > 0


OWN = """
import torch
from torch.nn import functional as F

class Mine:
    def __init__(self, width="3"): self.width = int(width)
    def model(self):
        print("deterministic:", torch.are_deterministic_algorithms_enabled())
        return torch.nn.Linear(self.width, 2)
    def datasets(self, source):
        x = torch.randn(50, self.width)
        data = torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long())
        return data, data
    def loss(self, output, target): return F.cross_entropy(output, target)
    def correct(self, output, target): return (output.argmax(1) == target).sum()
"""


def test_deterministic_kernels_are_switched_on_before_the_model_is_made_and_the_summary_says_so(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    done = train("mine:Mine", "--deterministic", "--epochs", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "deterministic: True" in done.stdout
    assert ", fp32, deterministic kernels" in done.stdout


def test_a_workload_of_the_users_own_is_found_where_they_stand(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    done = train(
        "mine:Mine",
        "--set",
        "width=5",
        "--lr",
        "0.1",
        "--epochs",
        "5",
        "--gamma",
        "1",
        "--json",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["test_samples"] == 50
    assert summary["test_accuracy"] > 0.8


MISTAKES = {
    "unknown-workload": ["mnist-cn"],
    "bad-nproc-per-node": ["mnist-cnn", "--nproc-per-node", "0"],
    "global-batch-too-small": ["mnist-cnn", "--nproc-per-node", "8", "--global-batch", "7"],
    "bad-option": ["mnist-cnn", "--epochs", "0"],
    "unwritable-model": ["mnist-cnn", "--save-model", "no/such/dir/model.pt"],
    "bad-setting": ["mnist-cnn", "--set", "dropout"],
    "no-data-directory": ["mnist-cnn", "--data", "no/such/dir"],
    "workload-not-found": ["no_such_module:Thing"],
    "other-data": ["mnist-cnn", "--data", "cifar100"],
    "strategy-not-supported": ["linear", "--strategy", "pp", "--nproc-per-node", "2"],
    "precision-needs-gpu": ["mnist-cnn", "--precision", "fp16", "--device", "cpu"],
    "too-few-virtual-shards": [
        "linear",
        "--exact",
        "any-world",
        "--virtual-shards",
        "1",
        "--nproc-per-node",
        "2",
    ],
    "model-not-found": ["resnet50-mnist", "--set", "model=no_such_module:resnet50"],
}


@pytest.mark.repeated
@pytest.mark.parametrize("code", MISTAKES)
def test_each_mistake_is_one_error_without_a_traceback(tmp_path, code):
    done = train(*MISTAKES[code], cwd=tmp_path)
    assert done.returncode == 2
    assert f"[{code}]" in done.stderr.splitlines()[0]
    assert "Traceback" not in done.stderr


def test_a_truncated_file_is_named(tmp_path, few_images):
    path = few_images / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:100])
    done = train("mnist-cnn", "--data", few_images, "--nproc-per-node", "2", cwd=tmp_path)
    assert done.returncode == 2
    first, *rest = done.stderr.splitlines()
    assert first.startswith("error: ") and "t10k-images-idx3-ubyte.gz" in first and "[bad-idx-file]" in first
    assert len(rest) == 1  # the hint: both ranks met the mistake, and it is said once


@pytest.mark.own_python
def test_without_torch_there_is_one_error_that_says_so(tmp_path):
    code = "import sys; sys.modules['torch'] = None; from rankup.cli.app import main; main(['train', 'mnist-cnn'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert "torch is not installed" in done.stderr
    assert "Traceback" not in done.stderr


def test_under_a_launcher_it_is_one_of_the_ranks_and_starts_nothing(tmp_path, few_images):
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "rankup",
         "train", "mnist-cnn", "--data", str(few_images), "--epochs", "1"],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "2 × CPU" in done.stdout
    assert done.stdout.count("accuracy   ") == 1
    assert not (tmp_path / "runs").exists()


def test_a_workloads_own_defaults_hold_where_no_flag_was_given_and_the_summary_says_which(tmp_path):
    done = train("linear", "--lr", "0.05", "--epochs", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("with "))
    assert "sgd (workload), lr 0.05, momentum 0 (workload)" in line
    assert line.endswith("global batch 64, fp32")


@pytest.mark.slow
def test_training_ends_once_the_target_is_met_in_enough_epochs_in_a_row(tmp_path):
    done = train(
        "linear", "--target-accuracy", "0.99", "--patience", "2", "--epochs", "50",
        "--nproc-per-node", "2", "--json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    epochs = read_records(Path(summary["run"]) / "records" / "epochs.jsonl", "epoch")
    good = [epoch["metrics"]["test_accuracy"] >= 0.99 for epoch in epochs]
    assert 2 <= len(epochs) < 50
    assert good[-2:] == [True, True]
    assert not any(a and b for a, b in pairwise(good[:-1]))  # and not an epoch later
    assert (summary["epochs_done"], summary["target_reached"]) == (len(epochs), True)
    assert "target     99.00% in 2 epochs in a row: reached" in done.stderr


def test_results_on_stand_in_data_say_so_everywhere(tmp_path):
    done = train(
        "wideresnet-cifar100", "--data", "synthetic", "--set", "depth=10", "--set", "width=1",
        "--set", "images=60", "--global-batch", "30", "--epochs", "1", "--json", "--nproc-per-node", "1", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert "not CIFAR-100" in summary["data_note"]
    assert (summary["samples"], summary["test_samples"], summary["unit"]) == (60, 12, "images")
    for begin in ("epoch 1/1  loss", "trained", "accuracy"):
        (line,) = (line for line in done.stderr.splitlines() if line.startswith(begin))
        assert "synthetic stand-in, not CIFAR-100" in line
