"""What a workload is: the few members that the loop calls. Any class with them works, built-in or yours.

rankup train mnist-cnn                    a built-in one, from ``rankup.workloads.WORKLOADS``
rankup train my_module:MyWorkload         yours: a class that is called with the ``--set`` options
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn
from torch.utils.data import Dataset

from rankup.core.registry import load
from rankup.errors import RankupError
from rankup.runtime.data import ResidentData

Data = Dataset[Any] | ResidentData


class Workload(Protocol):
    """Model, data, loss and metric of one example. ``source`` is the value of ``--data``."""

    def model(self) -> nn.Module:
        """A fresh model on the CPU. The generators are seeded: equal seeds give equal weights."""
        ...

    def present(self, source: str) -> bool:
        """Whether the data can be read on this host without fetching anything."""
        ...

    def home(self, source: str) -> Path:
        """The directory that ``obtain`` fills; asked only where a host lacks the data."""
        ...

    def obtain(self, source: str) -> None:
        """Fetch what is missing to ``home``. One process per node, or in all where nodes share it, goes first."""
        ...

    def datasets(self, source: str) -> tuple[Data, Data]:
        """Training and test data; each sample is (input, target)."""
        ...

    def loss(self, output: Any, target: Any) -> torch.Tensor:
        """The mean over the batch, a scalar."""
        ...

    def correct(self, output: Any, target: Any) -> torch.Tensor:
        """How many samples of the batch are right, a scalar."""
        ...


MEMBERS = ("model", "present", "home", "obtain", "datasets", "loss", "correct")


def make_workload(target: str, settings: dict[str, str]) -> Workload:
    """``package.module:Class`` called with ``settings``; errors name what is missing or unknown."""
    try:
        made = load(target)(**settings)  # type: ignore[operator]
    except (ImportError, AttributeError) as error:
        raise RankupError(
            "workload-not-found",
            f"cannot import the workload {target!r}: {error}",
            hint="module:Class, importable from the current directory or PYTHONPATH",
        ) from error
    except TypeError as error:
        raise RankupError(
            "bad-setting", f"{target} does not take {', '.join(settings) or 'no settings'}: {error}"
        ) from error
    missing = [name for name in MEMBERS if not callable(getattr(made, name, None))]
    if missing:
        raise RankupError(
            "not-a-workload",
            f"{target} lacks {', '.join(missing)}",
            hint="rankup.train.workload.Workload documents the members",
        )
    return made  # type: ignore[no-any-return]
