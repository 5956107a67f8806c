"""Reports a training: records for programs, plain lines for logs. Only rank 0 writes and prints.

The progress bar is drawn by the process that started the ranks, from the records (``cli/output/progress.py``). So it
looks the same for one process and for many.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from typing import Any

import torch

from rankup.core.records import RecordWriter
from rankup.core.units import duration, rate
from rankup.runtime.api import Run
from rankup.runtime.loop.epochs import Epoch
from rankup.train.metrics import EvaluationResult
from rankup.train.options import TrainOptions
from rankup.train.workload import Workload, note_on, unit_of

PROGRESS_EVERY_S = 0.5
LINE_EVERY_S = 10.0


class TrainingReport:
    """Times are wall-clock seconds. ``samples`` are those that were really trained, summed over ranks.

    Every result carries the workload's ``data_note``.
    """

    def __init__(self, run: Run, options: TrainOptions, workload: Workload) -> None:
        self._run = run
        self._options = options
        self._unit = unit_of(workload)
        self._note = note_on(workload, options.data)
        folder = run.directory.records if run.directory and run.is_main else None
        self._progress = RecordWriter(folder / "steps.jsonl") if folder else None
        self._epochs = RecordWriter(folder / "epochs.jsonl") if folder else None
        self._board = _board(run, options)
        self._began = time.perf_counter()
        self._before = 0.0  # seconds of earlier attempts, up to the snapshot of the resume
        self._train_seconds = 0.0
        self._samples = 0
        self._epoch_samples, self._epoch_before = 0, 0.0  # in this epoch; seconds of earlier attempts
        self._epoch_began: float | None = None  # None outside of an epoch's training
        self._steps_done = 0
        self._last: dict[str, Any] = {}
        run.register(report=self)

    #: It holds times, so ``rankup verify`` does not compare it.
    timed = True

    def state_dict(self) -> dict[str, Any]:
        """Samples and seconds over all attempts, so that the summary is that of the whole training."""
        return {
            "seconds": self._seconds(),
            "train_seconds": self._train_seconds,
            "samples": self._samples,
            "global_step": self._steps_done,
            "last": dict(self._last),
            "epoch_seconds": self._epoch_elapsed(),
            "epoch_samples": self._epoch_samples,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._before = state_dict.get("seconds", 0.0)
        self._train_seconds = state_dict["train_seconds"]
        self._samples = state_dict["samples"]
        self._steps_done = state_dict["global_step"]
        self._last = dict(state_dict["last"])
        self._epoch_before = state_dict.get("epoch_seconds", 0.0)
        self._epoch_samples = state_dict.get("epoch_samples", 0)

    def _seconds(self) -> float:
        return self._before + time.perf_counter() - self._began

    def _epoch_elapsed(self) -> float:
        """Seconds of this epoch's training, over all attempts."""
        running = 0.0 if self._epoch_began is None else time.perf_counter() - self._epoch_began
        return self._epoch_before + running

    def epoch_begins(self, epoch: Epoch) -> None:
        self._epoch = epoch.index
        self._steps = len(epoch)
        self._step = self._first = epoch.done
        if epoch.done == 0:
            self._epoch_samples, self._epoch_before = 0, 0.0
        self._epoch_began = self._spoke = self._lined = time.perf_counter()

    def step(self) -> None:
        """Called after each micro-batch. It reads the clock, and waits for the device only if it reports."""
        batch = self._run.batch
        assert batch is not None
        if not batch.last:
            return
        self._step += 1
        self._epoch_samples += batch.total
        self._steps_done += 1
        now = time.perf_counter()
        interval = self._options.log_interval
        asked = interval > 0 and self._step % interval == 0
        # Under pp rank 0 has no loss: it prints only the epoch's line.
        seen = self._run.is_main and bool(self._run.meter.names)
        if not seen or not (asked or now - self._spoke >= PROGRESS_EVERY_S):
            return
        self._spoke = now
        here = EvaluationResult.of(self._run.meter.here())  # rank 0's values are enough for progress
        elapsed = self._epoch_elapsed()
        pace = self._epoch_samples / elapsed
        fields = {
            "epoch": self._epoch + 1,
            "epochs": self._options.epochs,
            "step": self._step,
            "steps": self._steps,
            "loss": here.loss,
            "accuracy": here.accuracy,
            "samples": self._epoch_samples,
            "samples_per_s": pace,
        }
        if self._progress:
            self._progress.write("step", **fields)
        if self._board:
            self._board.add_scalar("train/loss", here.loss, self._steps_done)
        if asked or (now - self._lined >= LINE_EVERY_S and not self._options.bar):
            self._lined = now
            ours = (
                elapsed - self._epoch_before
            )  # this attempt alone: earlier ones may have run on other machines
            left = (self._steps - self._step) * ours / (self._step - self._first)
            self._run.print(
                f"epoch {self._epoch + 1}/{self._options.epochs}  step {self._step}/{self._steps}  "
                f"loss {here.loss:.4f}  accuracy {here.accuracy:.2%}  {rate(pace)} {self._unit}/s  "
                f"left {duration(left)}{self._noted()}"
            )

    def epoch_trained(self, trained: EvaluationResult) -> None:
        """Called after the training part of an epoch has ended, also on the device."""
        self._epoch_seconds = self._epoch_elapsed()
        # After a stop request in the evaluation, the state before the evaluation is saved, and this runs again.
        self._epoch_began, self._epoch_before = None, self._epoch_seconds
        self._train_seconds += self._epoch_seconds
        self._samples += trained.samples

    def epoch_ends(
        self, trained: EvaluationResult, tested: EvaluationResult, *, target_reached: bool
    ) -> None:
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
            "target_reached": target_reached,
            "data_note": self._note,
        }
        if self._epochs:
            self._epochs.write("epoch", **self._last)
        if self._board:
            for name in ("train_loss", "test_loss", "test_accuracy"):
                self._board.add_scalar("epoch/" + name, self._last[name], self._epoch + 1)
        self._run.print(
            f"epoch {self._epoch + 1}/{self._options.epochs}  loss {trained.loss:.4f}  "
            f"test loss {tested.loss:.4f}  test accuracy {tested.accuracy:.2%} of {tested.samples}  "
            f"{rate(pace)} {self._unit}/s{self._noted()}"
        )

    def _noted(self) -> str:
        return f"  [{self._note}]" if self._note else ""

    def ends(self) -> dict[str, Any]:
        """Write the summary: a record, and the last lines of the log. Returns it."""
        world = self._run.world
        summary = {
            **{
                k: v
                for k, v in asdict(self._options).items()
                if k not in ("save_model", "log", "log_interval", "bar", "given")
            },
            "strategy": self._run.strategy,
            "world_size": world.world_size,
            "nodes": world.num_nodes,
            "device": _device_name(self._run.device),
            "device_type": self._run.device.type,
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "seconds": self._seconds(),
            "train_seconds": self._train_seconds,
            "samples": self._samples,
            "samples_per_s": self._samples / self._train_seconds,
            "unit": self._unit,
            "data_note": self._note,
            "epochs_done": self._last["epoch"],
            "target_reached": self._last["target_reached"],
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
            f"{self._last['epoch']} epochs of {self._last['train_samples']:,} {self._unit}{self._noted()}\n"
            f"with       {_recipe(self._options)}\n"
            f"time       {duration(self._train_seconds)} training, {duration(float(summary['seconds']))} in all\n"
            f"speed      {rate(float(summary['samples_per_s']))} {self._unit}/s\n"
            f"devices    {devices}\n"
            f"accuracy   {self._last['test_accuracy']:.2%} of {self._last['test_samples']:,} test {self._unit}"
            f"{self._noted()}{_ending(self._options, target_reached=self._last['target_reached'])}"
        )
        return summary


def _recipe(options: TrainOptions) -> str:
    """The optimizer and its settings; ``(workload)`` after those that the workload's defaults have set."""
    values = {"optimizer": options.optimizer, "lr": f"lr {options.lr:g}"}
    if options.optimizer == "sgd":
        values["momentum"] = f"momentum {options.momentum:g}"
        values["nesterov"] = "Nesterov" if options.nesterov else ""
    values["weight_decay"] = f"weight decay {options.weight_decay:g}" if options.weight_decay else ""
    values["gamma"] = f"gamma {options.gamma:g}"
    values["global_batch"] = f"global batch {options.global_batch:,}"
    values["precision"] = options.precision
    values["compile"] = "compiled" if options.compile else ""
    values["channels_last"] = "channels last" if options.channels_last else ""
    values["deterministic"] = "deterministic kernels" if options.deterministic else ""
    return ", ".join(
        f"{value} (workload)" if name in options.from_workload else value
        for name, value in values.items()
        if value
    )


def _ending(options: TrainOptions, *, target_reached: bool) -> str:
    """A line about the target accuracy; "" without one."""
    if options.target_accuracy is None:
        return ""
    epochs = f"{options.patience} epochs in a row" if options.patience > 1 else "one epoch"
    reached = "reached" if target_reached else "not reached"
    return f"\ntarget     {options.target_accuracy:.2%} in {epochs}: {reached}"


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def _board(run: Run, options: TrainOptions) -> Any:
    """TensorBoard's writer, if ``--log tensorboard`` is given. Its package is checked before the ranks start."""
    if options.log != "tensorboard" or not run.is_main:
        return None
    from torch.utils.tensorboard import SummaryWriter

    folder = run.directory.path / "tensorboard" if run.directory else os.path.join("runs", "tensorboard")  # noqa: PTH118
    return SummaryWriter(str(folder))
