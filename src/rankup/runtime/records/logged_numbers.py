"""The numbers of ``run.log``, each with the step at which it was logged, until a record tells them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from rankup.core.whole_lines import say
from rankup.errors import RankupError
from rankup.runtime.distributed.control import Control, same_on_all

Logged = float | torch.Tensor


class LoggedNumbers:
    """The newest of each name. A number on a GPU stays there, copied, until a record is due: to read it waits."""

    def __init__(self) -> None:
        self._untold: dict[str, tuple[int, Logged]] = {}  # name → step, number
        self._told: dict[str, Logged] = {}  # of the epoch in progress

    def add(self, numbers: Mapping[str, Any], step: int) -> None:
        """Raises RankupError for what is not one number."""
        for name, value in numbers.items():
            self._untold[name] = (step, one_number(name, value))

    def take(self) -> dict[int, dict[str, float | None]]:
        """Step → the numbers that no record has told yet, the earliest first."""
        taken: dict[int, dict[str, float | None]] = {}
        for name, (step, value) in sorted(self._untold.items(), key=lambda item: item[1][0]):
            taken.setdefault(step, {})[name] = as_json(value)
        self._told = self._newest()
        self._untold.clear()
        return taken

    def latest(self) -> dict[str, float | None]:
        """The newest of each name in this epoch, told or not."""
        return {name: as_json(value) for name, value in self._newest().items()}

    def _newest(self) -> dict[str, Logged]:
        return self._told | {name: value for name, (_, value) in self._untold.items()}

    def latest_loss(self) -> float | None:
        """The newest number whose name has ``loss`` in it, else the newest of the first name; None without any."""
        newest = self._newest()
        name = next((one for one in newest if "loss" in one.lower()), next(iter(newest), None))
        return None if name is None else as_json(newest[name])

    def end_epoch(self) -> None:
        """The epoch's numbers are told, on rank 0; nobody asks the others for them."""
        self._told.clear()
        self._untold.clear()


def one_number(name: str, value: Any) -> Logged:
    """``value`` as it can be kept: the script may change a tensor afterwards."""
    if type(value) is torch.Tensor and value.is_cpu:  # nearly every call
        try:
            return float(value.item())
        except (RuntimeError, TypeError):  # several elements, or a complex number: said below
            pass
    if not isinstance(value, torch.Tensor):
        try:
            return float(value)
        except (TypeError, ValueError):
            raise _refused(name, f"a {type(value).__name__}") from None
    if hasattr(value, "full_tensor"):
        raise _refused(
            name, "a part of a sharded tensor", f"run.log({name}=value.full_tensor()), on all ranks"
        )
    if value.numel() != 1:
        raise _refused(name, f"a tensor of shape {tuple(value.shape)}", f"run.log({name}=value.mean())")
    if value.is_complex():
        raise _refused(name, "a complex number", f"run.log({name}=abs(value))")
    return (
        float(value.item()) if value.is_cpu else value.detach().clone()
    )  # a subclass on the CPU, or a GPU's


def warn_of_logged(metrics: Mapping[str, Logged], control: Control | None, rank: int) -> bool:
    """Whether numbers of an epoch were found that differ between ranks: a snapshot has rank 0's, which may be a number
    of its share alone. A collective."""
    mine = {name: repr(float(value)) for name, value in metrics.items()}
    what = "the comparison of what run.log got"
    if control is None or same_on_all(control, what, mine):
        return False
    everyone = control.gather(what, mine)
    first = everyone[0]
    names = [name for name, text in first.items() if any(other.get(name, text) != text for other in everyone)]
    if names and rank == 0:
        say(
            f"warning: {', '.join(names)} of run.log is not the same on all ranks, and rank 0's is recorded: a number "
            "of its share of the samples? run.meter, run.mean, or run.log(over_ranks=True) are of all"
        )
    return bool(names)


def as_json(value: Logged) -> float | None:
    """A finite number, or None: JSON has neither NaN nor infinity."""
    number = float(value)
    return number if math.isfinite(number) else None


def _refused(name: str, what: str, hint: str = "") -> RankupError:
    return RankupError(
        "not-a-number", f"run.log({name}=…) got {what}, and a metric is one number", hint=hint, exit_code=1
    )
