"""A workload: the members that the training loop calls. Any class that has them works, built-in or your own.

rankup train mnist-cnn                    a built-in workload, from ``rankup.workloads.WORKLOADS``
rankup train my_module:MyWorkload         your own: a class that is called with the ``--set`` options

Every workload has the four members of ``Workload``. The protocols below it are optional.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn
from torch.utils.data import Dataset

from rankup.core.registry import load
from rankup.errors import RankupError
from rankup.runtime.api import Run
from rankup.runtime.data.resident import ResidentData
from rankup.runtime.distributed.sections import first

Data = Dataset[Any] | ResidentData


class Workload(Protocol):
    """Model, data, loss and metric of one example. ``source`` is the value of ``--data``.

    It may have a ``unit``, the name of its samples: with "images" the speed is printed in images/s.
    """

    def model(self) -> nn.Module:
        """A fresh model on the CPU. The generators are seeded: equal seeds give equal weights."""
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


@runtime_checkable
class Fetches(Protocol):
    """A workload whose data may have to be downloaded. Define all three members, or none."""

    def present(self, source: str) -> bool:
        """Whether the data can be read on this host without a download."""
        ...

    def home(self, source: str) -> Path:
        """The directory that ``obtain`` fills. It is called only if a host lacks the data."""
        ...

    def obtain(self, source: str) -> None:
        """Fetch missing files to ``home``. One process per node calls it first, or one of all if the nodes share it."""
        ...


@runtime_checkable
class HasDefaults(Protocol):
    """A workload with default values for the options of ``rankup train``."""

    def defaults(self) -> Mapping[str, Any]:
        """Values for options that are not given: ``{"optimizer": "sgd", "lr": 0.1}``.

        ``rankup.train.options.DEFAULTS`` lists the names.
        """
        ...


@runtime_checkable
class NotesData(Protocol):
    """A workload whose results need a note about the data."""

    def data_note(self, source: str) -> str:
        """A short text that is printed with every result ("synthetic stand-in"), or ""."""
        ...


MEMBERS = ("model", "datasets", "loss", "correct")
FETCHING = ("present", "home", "obtain")


def make_workload(target: str, settings: dict[str, str]) -> Workload:
    """Call ``package.module:Class`` with ``settings``. Errors name missing members and unknown settings."""
    try:
        made = load(target)(**settings)  # type: ignore[operator]
    except (ImportError, AttributeError) as error:
        raise RankupError(
            "workload-not-found",
            f"cannot import the workload {target!r}: {error}",
            hint="use module:Class; the module must be importable from the current directory or PYTHONPATH",
        ) from error
    except (TypeError, ValueError) as error:
        given = ", ".join(f"{key}={value}" for key, value in settings.items())
        raise RankupError(
            "bad-setting", f"{target} does not accept {given or 'a call without settings'}: {error}"
        ) from error
    missing = _missing(made, MEMBERS)
    if len(_missing(made, FETCHING)) < len(FETCHING):
        missing += _missing(made, FETCHING)
    if missing:
        raise RankupError(
            "not-a-workload",
            f"{target} lacks {', '.join(missing)}",
            hint="a workload has model, datasets, loss and correct; define all of present, home and obtain, or none",
        )
    return made  # type: ignore[no-any-return]


def _missing(made: object, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if not callable(getattr(made, name, None))]


def defaults_of(workload: Workload) -> Mapping[str, Any]:
    return workload.defaults() if isinstance(workload, HasDefaults) else {}


def unit_of(workload: Workload) -> str:
    return str(getattr(workload, "unit", "samples"))


def note_on(workload: Workload, source: str) -> str:
    return workload.data_note(source) if isinstance(workload, NotesData) else ""


def ready_data(run: Run, workload: Workload, source: str) -> tuple[Data, Data]:
    """Training and test data, fetched first if a host lacks them. A collective."""
    # The sum makes all ranks enter, or none.
    if isinstance(workload, Fetches) and run.sum(int(not workload.present(source))):
        with first(directory=workload.home(source)):
            workload.obtain(source)
    return workload.datasets(source)
