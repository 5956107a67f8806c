"""The commands, as somebody with one GPU types them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def rankup(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "rankup", *args], cwd=cwd, capture_output=True, text=True)


def trained(*args: str, cwd: Path) -> dict[str, Any]:
    done = rankup("train", *args, "--device", "cuda", "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


@pytest.mark.parametrize(
    "how", [(), ("--compile", "--precision", "bf16"), ("--precision", "fp16", "--clip", "1")]
)
def test_mnist_cnn_learns_the_digits(tmp_path, how):
    summary = trained("mnist-cnn", "--data", "digits", "--epochs", "4", *how, cwd=tmp_path)
    assert summary["device_type"] == "cuda"
    assert summary["test_accuracy"] > 0.9


def test_wideresnet_trains_on_the_stand_in_with_everything_switched_on(tmp_path):
    summary = trained(
        "wideresnet-cifar100", "--data", "synthetic", "--epochs", "1", "--precision", "bf16", "--channels-last",
        "--compile", "--set", "depth=10", "--set", "width=2", "--set", "images=1000", cwd=tmp_path,
    )  # fmt: skip
    assert summary["samples"] == 1000


@pytest.mark.parametrize(
    "work",
    [
        ("mnist-cnn", "--set", "augment=on", "--deterministic"),
        ("mnist-cnn", "--exact", "any-world", "--set", "augment=on"),
    ],
    ids=" ".join,
)
def test_a_training_with_kills_is_the_uninterrupted_one_to_the_bit(tmp_path, work):
    done = rankup("verify", "--steps", "12", "--kills", "2", *work, "--device", "cuda", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_two_processes_for_one_gpu_are_one_clear_error(tmp_path):
    done = rankup(
        "train", "mnist-cnn", "--nproc-per-node", "2", "--device", "cuda", "--dry-run", cwd=tmp_path
    )
    if done.returncode == 0:
        pytest.skip("this machine has more than one GPU")
    assert "share one GPU" in done.stderr and "Traceback" not in done.stderr
