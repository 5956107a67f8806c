"""Loss and accuracy over many batches: sums on the device, one reduction at the end, no wait in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from rankup.runtime.run import Run


@dataclass(frozen=True)
class Result:
    """Over all ranks: mean loss, share of right answers in [0, 1], and the samples that were counted."""

    loss: float
    accuracy: float
    samples: int


class Meter:
    """Adds up one rank's batches. It can be kept: then an epoch that is resumed counts what came before as well."""

    #: Its state is each rank's own.
    per_rank = True

    def __init__(self, device: torch.device) -> None:
        self._sums = torch.zeros(2, dtype=torch.float64, device=device)  # loss · samples, right answers
        self.samples = 0

    def add(self, loss: torch.Tensor, correct: torch.Tensor, samples: int) -> None:
        """``loss`` is the mean over ``samples``; 0 samples add nothing, whatever the loss says."""
        if samples:
            self._sums += torch.stack((loss.detach().double() * samples, correct.double()))
            self.samples += samples

    def reset(self) -> None:
        self._sums.zero_()
        self.samples = 0

    def state_dict(self) -> dict[str, Any]:
        return {"sums": self._sums, "samples": self.samples}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._sums.copy_(state_dict["sums"])
        self.samples = state_dict["samples"]

    def here(self) -> Result:
        """This rank's batches so far. Waits for the device."""
        loss, correct = self._sums.tolist()
        return Result(loss / max(self.samples, 1), correct / max(self.samples, 1), self.samples)

    def everywhere(self, run: Run) -> Result:
        """All ranks' batches. A collective."""
        samples = run.sum(self.samples)
        loss, correct = run.sum(self._sums).tolist()
        return Result(loss / max(samples, 1), correct / max(samples, 1), samples)
