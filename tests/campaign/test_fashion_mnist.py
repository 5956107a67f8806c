"""The real data set, whole: 60,000 images, five epochs in steps of 64, on one process and on two."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "fashion-mnist.json"


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_fashion_mnist_reaches_ninety_percent_on_one_process_and_on_two(tmp_path):
    summaries = {}
    for processes in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "rankup", "train", "mnist-cnn", "--data", "fashion-mnist", "--epochs", "5",
             "--global-batch", "64", "--nproc-per-node", processes, "--json"],
            capture_output=True, text=True, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        summary = json.loads(done.stdout)
        del summary["run"]  # a path of this machine
        summaries[processes] = summary
    RESULTS.write_text(json.dumps(summaries, indent=2) + "\n")
    for summary in summaries.values():
        assert summary["samples"] == 5 * 60_000
        assert summary["test_samples"] == 10_000
        assert summary["test_accuracy"] >= 0.90
