"""Where two snapshots differ: tensors by their largest difference, everything else by its value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch

from rankup.snapshots.layout import VALUES, Entry
from rankup.snapshots.manifest import Manifest
from rankup.snapshots.shards import dtype_of, read_into
from rankup.snapshots.snapshot import load_plain, load_rank_state


@dataclass(frozen=True)
class TensorDifference:
    """``largest`` is the largest absolute difference of a tensor that both have in the same shape and dtype (NaN
    against a number counts as infinite); None for anything else, which ``left`` and ``right`` describe."""

    name: str
    left: str
    right: str
    largest: float | None = None


def load_tensor(entry: Entry, manifest: Manifest, name: str) -> torch.Tensor:
    """A whole tensor of a snapshot, on the CPU."""
    saved = manifest.tensors[name]
    tensor = torch.empty(saved.shape, dtype=dtype_of(saved.dtype))
    read_into(tensor, saved, entry.path, name)
    return tensor


def compare(left: tuple[Entry, Manifest], right: tuple[Entry, Manifest]) -> list[TensorDifference]:
    """What differs in the tensors, in the order of the state's names, then in the plain values that all ranks share,
    then in what the script has registered, as the first rank has it."""
    tensors = [
        {name: _Held(_form(saved.dtype, saved.shape), partial(load_tensor, entry, manifest, name))
         for name, saved in manifest.tensors.items()}
        for entry, manifest in (left, right)
    ]  # fmt: skip
    values = [dict(sorted(load_plain(entry.path / VALUES).items())) for entry, _ in (left, right)]
    own = [dict(_leaves(registered(*side), "registered")) for side in (left, right)]
    others = [{name: _held(value) for name, value in found.items()} for found in (*values, *own)]
    groups = (tensors, others[:2], others[2:])
    return [difference for mine, theirs in groups for difference in _differences(mine, theirs)]


def registered(entry: Entry, manifest: Manifest) -> dict[str, Any]:
    """Name → the state of what the script has registered, as the first rank has it."""
    state = load_rank_state(entry.path, manifest, min(manifest.states)) if manifest.states else {}
    held = state.get("registered", {})
    return {name: value for name, value in held.items() if not name.startswith("run.")}  # rankup's own


class _Held(NamedTuple):
    """``read`` gives the tensor; None for anything else, which ``shown`` is the whole of."""

    shown: str
    read: Callable[[], torch.Tensor] | None = None


_NOTHING = _Held("nothing")


def _differences(mine: dict[str, _Held], theirs: dict[str, _Held]) -> Iterator[TensorDifference]:
    for name in [*mine, *(name for name in theirs if name not in mine)]:
        a, b = mine.get(name, _NOTHING), theirs.get(name, _NOTHING)
        if a.shown != b.shown:
            yield TensorDifference(name, a.shown, b.shown)
        elif a.read and b.read and (largest := largest_difference(a.read(), b.read())):
            yield TensorDifference(name, a.shown, b.shown, largest)


def _held(value: Any) -> _Held:
    if isinstance(value, torch.Tensor):
        return _Held(_form(str(value.dtype).removeprefix("torch."), value.shape), lambda: value)
    return _Held(repr(value))


def _form(dtype: str, shape: Sequence[int]) -> str:
    return f"{dtype}{list(shape)}"


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """What nested dicts, lists and tuples hold, named by its path."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in inside:
        if isinstance(item, (dict, list, tuple)):
            yield from _leaves(item, f"{name}/{key}")
        else:
            yield f"{name}/{key}", item


def largest_difference(a: torch.Tensor, b: torch.Tensor) -> float:
    """0 if both hold the same numbers: a NaN equals a NaN here, and 0 equals -0."""
    if not a.numel() or torch.equal(a, b):
        return 0.0
    wide = torch.complex128 if a.is_complex() else torch.float64
    a, b = a.to(wide), b.to(wide)
    same = (a == b) | (a.isnan() & b.isnan())
    gap = torch.where(same, 0.0, (a - b).abs())
    return float(torch.where(gap.isnan(), torch.inf, gap).max())
