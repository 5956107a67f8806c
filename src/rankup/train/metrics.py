"""Loss and accuracy over many batches: sums on the device, one reduction at the end, no wait in between."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rankup.runtime.run import Run


@dataclass(frozen=True)
class Result:
    """Over all ranks: mean loss, share of right answers in [0, 1], and the samples that were counted."""

    loss: float
    accuracy: float
    samples: int


class Meter:
    """Adds up one rank's batches."""

    def __init__(self, device: torch.device) -> None:
        self._sums = torch.zeros(2, dtype=torch.float64, device=device)  # loss · samples, right answers
        self.samples = 0

    def add(self, loss: torch.Tensor, correct: torch.Tensor, samples: int) -> None:
        """``loss`` is the mean over ``samples``; 0 samples add nothing, whatever the loss says."""
        if samples:
            self._sums += torch.stack((loss.detach().double() * samples, correct.double()))
            self.samples += samples

    def here(self) -> Result:
        """This rank's batches so far. Waits for the device."""
        loss, correct = self._sums.tolist()
        return Result(loss / max(self.samples, 1), correct / max(self.samples, 1), self.samples)

    def everywhere(self, run: Run) -> Result:
        """All ranks' batches. A collective."""
        samples = run.sum(self.samples)
        loss, correct = run.sum(self._sums).tolist()
        return Result(loss / samples, correct / samples, samples)
