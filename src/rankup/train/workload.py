"""What a workload is: the few members that the loop calls. Any class with them works, built-in or yours.

rankup train mnist-cnn                    a built-in one, from ``rankup.workloads.WORKLOADS``
rankup train my_module:MyWorkload         yours: a class that is called with the ``--set`` options

Four members every workload has (``Workload``); what else it may have is in the protocols below it, one for each thing
that a workload can do.
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

Data = Dataset[Any] | ResidentData


class Workload(Protocol):
    """Model, data, loss and metric of one example. ``source`` is the value of ``--data``.

    May have a ``unit``, what its samples are called: "images" makes the speed images/s.
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
    """A workload whose data may have to be downloaded. All three, or none."""

    def present(self, source: str) -> bool:
        """Whether the data can be read on this host without fetching anything."""
        ...

    def home(self, source: str) -> Path:
        """The directory that ``obtain`` fills; asked only where a host lacks the data."""
        ...

    def obtain(self, source: str) -> None:
        """Fetch what is missing to ``home``. One process per node, or in all where nodes share it, goes first."""
        ...


@runtime_checkable
class HasDefaults(Protocol):
    """A workload that knows how it is best trained."""

    def defaults(self) -> Mapping[str, Any]:
        """Values for ``rankup train``'s options where a flag is not given: ``{"optimizer": "sgd", "lr": 0.1}``.

        ``rankup.train.options.DEFAULTS`` lists the names.
        """
        ...


@runtime_checkable
class NotesData(Protocol):
    """A workload with data that its results must not be read without."""

    def data_note(self, source: str) -> str:
        """A few words, shown wherever a result is ("synthetic stand-in"); empty where there is nothing to say."""
        ...


MEMBERS = ("model", "datasets", "loss", "correct")
FETCHING = ("present", "home", "obtain")


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
    except (TypeError, ValueError) as error:
        said = ", ".join(f"{key}={value}" for key, value in settings.items())
        raise RankupError(
            "bad-setting", f"{target} does not take {said or 'no settings'}: {error}"
        ) from error
    missing = _missing(made, MEMBERS)
    if len(_missing(made, FETCHING)) < len(FETCHING):
        missing += _missing(made, FETCHING)
    if missing:
        raise RankupError(
            "not-a-workload",
            f"{target} lacks {', '.join(missing)}",
            hint="a workload has model, datasets, loss and correct; present, home and obtain go together",
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
    """Training and test data, fetched first where a host lacks them. A collective."""
    if isinstance(workload, Fetches) and run.sum(
        int(not workload.present(source))
    ):  # all ranks enter, or none
        with run.first(directory=workload.home(source)):
            workload.obtain(source)
    return workload.datasets(source)
