"""What a training says of itself: records for programs, plain lines for logs; rank 0 alone speaks.

A progress bar is not drawn here: the process that started the ranks draws it, from the records
(``cli/progress.py``), so that it looks the same for one process and for many.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from typing import Any

import torch

from rankup.core.records import RecordWriter
from rankup.core.units import duration, rate
from rankup.runtime.run import Run
from rankup.runtime.steps import Epoch
from rankup.train.metrics import Meter, Result
from rankup.train.options import TrainOptions

PROGRESS_EVERY_S = 0.5
LINE_EVERY_S = 10.0


class Report:
    """Times are wall-clock seconds; ``samples`` are those really seen, summed over ranks, not batches × sizes."""

    def __init__(self, run: Run, options: TrainOptions) -> None:
        self._run = run
        self._options = options
        folder = run.directory.records if run.directory and run.is_main else None
        self._progress = RecordWriter(folder / "steps.jsonl") if folder else None
        self._epochs = RecordWriter(folder / "epochs.jsonl") if folder else None
        self._board = _board(run, options)
        self._began = time.perf_counter()
        self._train_seconds = 0.0
        self._samples = 0
        self._steps_done = 0
        self._last: dict[str, Any] = {}

    def epoch_begins(self, epoch: Epoch) -> None:
        self._epoch = epoch.index
        self._steps = len(epoch)
        self._step = 0
        self._epoch_began = self._spoke = self._lined = time.perf_counter()

    def step(self, meter: Meter) -> None:
        """After each step; it costs a clock reading, and waits for the device only when there is something to say."""
        self._step += 1
        self._steps_done += 1
        now = time.perf_counter()
        interval = self._options.log_interval
        asked = interval > 0 and self._step % interval == 0
        if not self._run.is_main or not (asked or now - self._spoke >= PROGRESS_EVERY_S):
            return
        self._spoke = now
        here = meter.here()
        elapsed = time.perf_counter() - self._epoch_began
        # Rank 0's own count times the world size is near enough for a moving number; the epoch's record is exact.
        pace = here.samples * self._run.world.world_size / elapsed
        fields = {
            "epoch": self._epoch + 1,
            "epochs": self._options.epochs,
            "step": self._step,
            "steps": self._steps,
            "loss": here.loss,
            "accuracy": here.accuracy,
            "samples": here.samples * self._run.world.world_size,
            "samples_per_s": pace,
        }
        if self._progress:
            self._progress.write("step", **fields)
        if self._board:
            self._board.add_scalar("train/loss", here.loss, self._steps_done)
        if asked or (now - self._lined >= LINE_EVERY_S and not self._options.bar):
            self._lined = now
            left = (self._steps - self._step) * elapsed / self._step
            self._run.print(
                f"epoch {self._epoch + 1}/{self._options.epochs}  step {self._step}/{self._steps}  "
                f"loss {here.loss:.4f}  accuracy {here.accuracy:.2%}  {rate(pace)} samples/s  left {duration(left)}"
            )

    def epoch_trained(self, trained: Result) -> None:
        """The training part of the epoch is over, on the device too."""
        self._epoch_seconds = time.perf_counter() - self._epoch_began
        self._train_seconds += self._epoch_seconds
        self._samples += trained.samples

    def epoch_ends(self, trained: Result, tested: Result) -> None:
        pace = trained.samples / self._epoch_seconds
        self._last = {
            "epoch": self._epoch + 1,
            "epochs": self._options.epochs,
            "steps": self._step,
            "train_loss": trained.loss,
            "train_accuracy": trained.accuracy,
            "train_samples": trained.samples,
            "test_loss": tested.loss,
            "test_accuracy": tested.accuracy,
            "test_samples": tested.samples,
            "train_seconds": self._epoch_seconds,
            "samples_per_s": pace,
        }
        if self._epochs:
            self._epochs.write("epoch", **self._last)
        if self._board:
            for name in ("train_loss", "test_loss", "test_accuracy"):
                self._board.add_scalar("epoch/" + name, self._last[name], self._epoch + 1)
        self._run.print(
            f"epoch {self._epoch + 1}/{self._options.epochs}  loss {trained.loss:.4f}  "
            f"test loss {tested.loss:.4f}  test accuracy {tested.accuracy:.2%} of {tested.samples}  "
            f"{rate(pace)} samples/s"
        )

    def ends(self) -> dict[str, Any]:
        """The summary: a record, and the lines that end the log."""
        world = self._run.world
        summary = {
            **{
                k: v
                for k, v in asdict(self._options).items()
                if k not in ("save_model", "log", "log_interval", "bar")
            },
            "strategy": self._run.strategy.name,
            "world_size": world.world_size,
            "nodes": world.num_nodes,
            "device": _device_name(self._run.device),
            "device_type": self._run.device.type,
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "seconds": time.perf_counter() - self._began,
            "train_seconds": self._train_seconds,
            "samples": self._samples,
            "samples_per_s": self._samples / self._train_seconds,
            "test_samples": self._last["test_samples"],
            "test_loss": self._last["test_loss"],
            "test_accuracy": self._last["test_accuracy"],
        }
        if self._epochs:
            self._epochs.write("summary", **summary)
            self._epochs.close()
        if self._progress:
            self._progress.close()
        if self._board:
            self._board.close()
        nodes = f"{world.num_nodes} node{'s' if world.num_nodes > 1 else ''}"
        devices = f"{world.world_size} × {summary['device']}, {nodes}, {summary['threads']} threads each"
        self._run.print(
            f"\ntrained    {self._options.name} on {self._options.data}, "
            f"{self._last['epoch']} epochs of {self._last['train_samples']:,} samples\n"
            f"time       {duration(self._train_seconds)} training, {duration(float(summary['seconds']))} in all\n"
            f"speed      {rate(float(summary['samples_per_s']))} samples/s\n"
            f"devices    {devices}\n"
            f"accuracy   {self._last['test_accuracy']:.2%} of {self._last['test_samples']:,} test samples"
        )
        return summary


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def _board(run: Run, options: TrainOptions) -> Any:
    """TensorBoard's writer, where asked for; its package is checked before the ranks start."""
    if options.log != "tensorboard" or not run.is_main:
        return None
    from torch.utils.tensorboard import SummaryWriter

    folder = run.directory.path / "tensorboard" if run.directory else os.path.join("runs", "tensorboard")  # noqa: PTH118
    return SummaryWriter(str(folder))
