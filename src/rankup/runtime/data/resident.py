"""Data that fits in memory: one tensor per column, gathered and transformed a batch at a time on the device."""

from __future__ import annotations

from collections.abc import Callable

import torch

from rankup.errors import RankupError
from rankup.runtime.seed import SampleRandom

Columns = tuple[torch.Tensor, ...]
Transform = Callable[[Columns, SampleRandom], Columns]


class ResidentData:
    """``ResidentData(images, labels, transform=…)``: columns of equal length, resident on the rank's device.

    Each column is (N, …), of any dtype; uint8 stays uint8 in memory. ``transform(columns, random)`` sees a gathered
    batch on the device, (n, …) per column, and returns what the loop gets: normalise there, and augment with
    ``random``, whose numbers are keyed on (seed, epoch, sample) and so the same on any number of processes.
    """

    def __init__(self, *columns: torch.Tensor, transform: Transform | None = None) -> None:
        if not columns or len({len(column) for column in columns}) != 1:
            raise RankupError(
                "columns-differ",
                f"resident data wants columns of one length, not {[len(column) for column in columns]}",
            )
        self.columns = columns
        self.transform = transform
        self._placed: dict[torch.device, Columns] = {}

    def __len__(self) -> int:
        return len(self.columns[0])

    def on(self, device: torch.device) -> Columns:
        """The columns on ``device``; moved once."""
        if device not in self._placed:
            self._placed[device] = tuple(column.to(device) for column in self.columns)
        return self._placed[device]
