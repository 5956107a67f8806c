"""Prints a line per epoch and a summary, on rank 0 only.

The loop reports steps, progress and time left (``runtime/records``).
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import torch

from rankup.core.records import RecordWriter
from rankup.core.rundir import RunDir
from rankup.core.units import duration, rate
from rankup.runtime.api import Run
from rankup.runtime.loop.epochs import Epoch
from rankup.runtime.records.facts import device_name
from rankup.train.metrics import EvaluationResult
from rankup.train.options import TrainOptions
from rankup.train.workload import Workload, note_on, unit_of


class TrainingReport:
    """Times are wall-clock seconds. ``samples`` are those that were really trained, summed over ranks.

    Every result carries the workload's ``data_note``.
    """

    def __init__(self, run: Run, options: TrainOptions, workload: Workload) -> None:
        self._run = run
        self._options = options
        self._unit = unit_of(workload)
        self._note = note_on(workload, options.data)
        self._began = time.perf_counter()
        self._before = 0.0  # seconds of earlier attempts, up to the snapshot of the resume
        self._train_seconds = 0.0
        self._samples = 0
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
            "last": dict(self._last),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._before = state_dict["seconds"]
        self._train_seconds = state_dict["train_seconds"]
        self._samples = state_dict["samples"]
        self._last = dict(state_dict["last"])

    def _seconds(self) -> float:
        return self._before + time.perf_counter() - self._began

    def step(self, epoch: Epoch) -> None:
        """Called after each micro-batch. Prints a line every ``log_interval`` steps, which waits for the device."""
        interval = self._options.log_interval
        step = epoch.done  # the current batch's step counts as done
        if not interval or step % interval or not self._run.batch.last or not self._run.world.is_main:
            return
        if not self._run.meter.names:  # under pp rank 0 has no loss
            return
        here = EvaluationResult.of(self._run.meter.here())  # rank 0's values are enough here
        samples = epoch.samples + self._run.batch.total
        self._run.print(
            f"epoch {epoch.index + 1}/{self._options.epochs}  step {step}/{epoch.steps}  loss {here.loss:.4f}  "
            f"accuracy {here.accuracy:.2%}  {rate(samples / epoch.seconds)} {self._unit}/s{self._noted()}"
        )

    def epoch_ends(
        self, epoch: Epoch, trained: EvaluationResult, tested: EvaluationResult, *, target_reached: bool
    ) -> None:
        pace = trained.samples / epoch.seconds
        self._train_seconds += epoch.seconds
        self._samples += trained.samples
        self._last = {
            "epoch": epoch.index + 1,
            "train_samples": trained.samples,
            "test_loss": tested.loss,
            "test_accuracy": tested.accuracy,
            "test_samples": tested.samples,
            "target_reached": target_reached,
        }
        self._run.log(
            train_loss=trained.loss,
            train_accuracy=trained.accuracy,
            test_loss=tested.loss,
            test_accuracy=tested.accuracy,
        )
        self._run.print(
            f"epoch {epoch.index + 1}/{self._options.epochs}  loss {trained.loss:.4f}  "
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
                if k not in ("save_model", "log", "log_interval", "given")
            },
            "strategy": self._run.strategy.name,
            "world_size": world.world_size,
            "nodes": world.num_nodes,
            "device": device_name(self._run.device),
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
        directory = RunDir.from_environment()
        if directory is not None and world.is_main:
            with RecordWriter(directory.records / "epochs.jsonl") as records:
                records.write("summary", **summary)
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
