"""When a rank has computed its part of a step, just before it waits for the others: that tells slow from waiting.

The gradient of the first parameter is the last one that a backward pass computes. Its hook is called before the
gradients are reduced over the ranks. Sharded parameters (fsdp) have no such hook: then nothing is told.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import torch

EVERY = 1.0  # seconds between two measured steps on a GPU


class Arrival:
    """By the clock of the host, in each step. ``at``: when the gradients were computed last. ``known``: the number of
    steps whose arrival is known, and the sum of their seconds before it.
    """

    def __init__(self, parameter: torch.nn.Parameter) -> None:
        self.at = float("-inf")
        self.known = (0, 0.0)
        self._began = float("-inf")  # the step in progress
        self._hook: Any = parameter.register_post_accumulate_grad_hook(self._arrive)  # type: ignore[no-untyped-call]

    def _arrive(self, _: Any) -> None:
        self.at = time.perf_counter()

    def begin(self, now: float) -> None:
        """The first step of an epoch begins."""
        self._began = now

    def steps_done(self, steps: int, now: float) -> None:
        """So many steps are done, and the next one begins. One by itself is timed."""
        if steps == 1 and self.at > self._began:
            known, seconds = self.known
            self.known = (known + 1, seconds + self.at - self._began)
        self._began = now

    def close(self) -> None:
        self._hook.remove()


class DeviceArrival(Arrival):
    """By events on a GPU, in one step a second: the host does not wait for the device, and knows no times of it."""

    def __init__(self, parameter: torch.nn.Parameter, device: torch.device) -> None:
        super().__init__(parameter)
        self._due = float("-inf")
        module: Any = torch.get_device_module(device)
        event = module.Event
        self._start, self._reached = event(enable_timing=True), event(enable_timing=True)
        # An old torch.xpu has no graphs.
        self._capturing = getattr(module, "is_current_stream_capturing", lambda: False)
        self._state = "idle"  # armed: in the measured step; reached: in it, and arrived; done: after it

    def _arrive(self, _: Any) -> None:
        self.at = time.perf_counter()
        # Of several micro-batches the last one counts.
        if self._state in ("armed", "reached") and not self._capturing():
            self._reached.record()
            self._state = "reached"

    def steps_done(self, steps: int, now: float) -> None:
        if self._state == "reached" and steps == 1:
            self._state = "done"
        elif self._state in ("armed", "reached"):  # no gradient in this step, or in which one is not known
            self._state = "idle"
        if self._state == "done" and self._reached.query():
            known, seconds = self.known
            self.known = (known + 1, seconds + self._start.elapsed_time(self._reached) / 1000)
            self._state = "idle"
        if self._state == "idle" and now >= self._due and not self._capturing():
            self._start.record()
            self._state, self._due = "armed", now + EVERY


def arrival_of(models: Iterable[torch.nn.Module], device: torch.device) -> Arrival | None:
    """None if no parameter is trained."""
    trained = (one for model in models for one in model.parameters() if one.requires_grad and one.is_leaf)
    parameter = next(trained, None)
    if parameter is None:
        return None
    return Arrival(parameter) if device.type == "cpu" else DeviceArrival(parameter, device)
