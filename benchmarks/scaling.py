"""Strong scaling in its smallest form: two processes of one thread and one process, the same global batch of 256.

mnist-cnn by ``rankup train``; the runs take turns. Only the training part of each epoch counts, from the run's records,
without start-up and evaluation. The first epoch of each run is a warm-up. Both train on the same images in the same
order. Efficiency = seconds of one process / (2 × seconds of two).
"""

from __future__ import annotations

import gzip
import json
import statistics
import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.contest import Claim, Result, take_turns
from rankup.core import shell
from rankup.core.records import read_records
from rankup.workloads.data import is_present, load_images

GLOBAL_BATCH = 256


def write_subset(folder: Path, source: str, samples: int) -> None:
    """The first ``samples`` training images, and 256 test images, as IDX files: ``rankup train`` reads a directory."""
    for train, prefix, count in ((True, "train", samples), (False, "t10k", 256)):
        images, labels = load_images(source, train=train)
        images, labels = images[:count], labels[:count]
        for kind, values in (("images-idx3", images), ("labels-idx1", labels)):
            header = struct.pack(f">HBB{values.dim()}I", 0, 8, values.dim(), *values.shape)
            content = gzip.compress(header + bytes(values.flatten().tolist()), compresslevel=1)
            (folder / f"{prefix}-{kind}-ubyte.gz").write_bytes(content)


def training_seconds(data: Path, runs: Path, processes: int, epochs: int) -> Callable[[], float]:
    """Measures one run: the median over its epochs without the first."""
    command = [
        *(sys.executable, "-m", "rankup", "train", "mnist-cnn", "--json", "--device", "cpu"),
        *("--data", str(data), "--epochs", str(epochs), "--global-batch", str(GLOBAL_BATCH)),
        *("--nproc-per-node", str(processes), "--threads", "1", "--runs-root", str(runs)),
    ]

    def measure() -> float:
        done = shell.run(command, timeout=600)
        if done.code != 0:
            raise SystemExit(f"{shell.quote(command)} failed with {done.code}:\n{done.err}")
        records = Path(json.loads(done.out)["run"]) / "records" / "epochs.jsonl"
        warm = read_records(records, "epoch")[1:]
        return statistics.median(float(epoch["seconds"]) for epoch in warm)

    return measure


def run(quick: bool) -> Result:
    source = "fashion-mnist" if is_present("fashion-mnist") else "digits"
    samples, epochs = (1_024, 2) if quick else (10_240, 3)
    with tempfile.TemporaryDirectory() as scratch:
        data, runs = Path(scratch, "data"), Path(scratch, "runs")
        data.mkdir()
        write_subset(data, source, samples)
        rounds = take_turns(
            {
                "1 process": training_seconds(data, runs, 1, epochs),
                "2 processes": training_seconds(data, runs, 2, epochs),
            },
            1 if quick else 5,
        )
    settings = {
        "data": source,
        "samples": samples,
        "epochs": epochs,
        "global batch": GLOBAL_BATCH,
        "threads per process": 1,
        "precision": "fp32",
    }
    claim = Claim("efficiency of 2 processes", "1 process", "2 processes", 0.90, at_most=False, factor=1 / 2)
    return Result("scaling", "One process and two", "s/epoch", settings, rounds, [claim])
