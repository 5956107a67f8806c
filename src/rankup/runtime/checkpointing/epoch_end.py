"""The state at the end of an epoch, remembered without a copy of large tensors.

The code after an epoch's inner loop (an evaluation, mostly) changes neither weights nor the optimizer's moments, and
copying these at each epoch's end would cost a second per GiB. So only small tensors are copied, and a checksum of each
large one is remembered. If a large tensor changes, the state is lost, and ``unchanged`` returns False.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch

from rankup.runtime.tracing.fingerprint import SMALL, fingerprint
from rankup.snapshots.state import SnapshotState
from rankup.strategies.clipping import local


class EpochEndState:
    """``state`` at the time when this was made, as long as it is ``unchanged``."""

    def __init__(self, state: SnapshotState) -> None:
        self._large: list[tuple[torch.Tensor, object]] = []
        self._stable = state.stable
        self.state = replace(
            state,
            tensors=self._remember(state.tensors),
            rank_state=self._remember(state.rank_state),
            metadata=copy.deepcopy(state.metadata),
        )

    def unchanged(self) -> bool:
        """Whether the large tensors of this rank have not changed. Waits for the device."""
        return all(self._mark(tensor) == mark for tensor, mark in self._large)

    def _remember(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if local(value).nbytes <= SMALL:
                return value.detach().clone()
            self._large.append((value, self._mark(value)))
            return value
        if isinstance(value, dict):
            remembered = copy.copy(value)  # of the same kind: an OrderedDict, a Counter
            for key, item in value.items():
                remembered[key] = self._remember(item)
            return remembered
        if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
            return type(value)(self._remember(item) for item in value)
        return copy.deepcopy(value)

    def _mark(self, tensor: torch.Tensor) -> object:
        """A value that changes with ``tensor``. Torch counts an optimizer's changes of its moments; weights are often
        replaced through ``.data``, which torch does not count."""
        if id(tensor) in self._stable:
            return tensor._version
        return fingerprint(tensor)
