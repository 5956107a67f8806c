"""What only the first steps tell: the shape of the model's inputs, and an autocast that the script itself has entered.

A hook on the models looks at their first few training calls, and removes itself. The first dimension is the batch; one
that differs between these calls, as padded texts do, is ``?``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

CALLS = 3


class FirstBatches:
    """``local_batch``: samples of a call on this rank, 0 if unknown. Where the first dimension has another size, a
    later one of that size is the batch, ``N``."""

    def __init__(self, models: Sequence[torch.nn.Module], device_type: str, local_batch: int = 0) -> None:
        self._device_type, self._local_batch = device_type, local_batch
        self._shapes: list[list[tuple[str, tuple[int, ...]]]] = []
        self._autocast: set[str] = set()
        # A compiled model would be compiled again for a hook that comes and goes: it tells nothing. A model that is
        # prepared twice is one: of two hooks on it, the first would take the second off while torch calls both.
        self._hooks = [
            model.register_forward_pre_hook(self._look, prepend=True, with_kwargs=True)
            for model in dict.fromkeys(models)
            if getattr(model, "_compiled_call_impl", None) is None and not hasattr(model, "_orig_mod")
        ]

    @property
    def facts(self) -> dict[str, str]:
        """Empty if no model was called."""
        if not self._shapes:
            return {}
        return {"inputs": self._inputs(), "autocast": " and ".join(sorted(self._autocast))}

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _look(self, model: torch.nn.Module, args: Any, kwargs: Mapping[str, Any]) -> None:
        if not model.training:
            return
        tensors = _tensors([args, kwargs])
        found = [(str(one.dtype).removeprefix("torch."), tuple(one.shape)) for one in tensors]
        self._shapes.append(found)
        # Of the script: what `precision=` of rankup enters comes later, in a hook of its own.
        kind = self._device_type
        on = torch.is_autocast_enabled(kind)
        self._autocast.add(str(torch.get_autocast_dtype(kind)).removeprefix("torch.") if on else "off")
        if len(self._shapes) == CALLS:
            self.close()

    def _inputs(self) -> str:
        first, *others = self._shapes
        alike = [call for call in others if [(d, len(s)) for d, s in call] == [(d, len(s)) for d, s in first]]
        if len(alike) < len(others):
            return "?"
        described = []
        for index, (dtype, shape) in enumerate(first):
            batch = 0 if shape[:1] == (self._local_batch,) else self._local_batch
            sizes = [
                "?"
                if any(call[index][1][axis] != size for call in alike)
                else "N"
                if size == batch
                else str(size)
                for axis, size in enumerate(shape)
                if axis > 0
            ]
            described.append(" ".join([dtype, "×".join(sizes)]).strip())
        return ", ".join(described)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """In tuples, lists and mappings: what they hold is looked at, and nothing of the script is called."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list, Mapping)):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(one)
