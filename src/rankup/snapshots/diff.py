"""Where two snapshots differ: tensors by their largest difference, everything else by its value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from rankup.snapshots.layout import VALUES, Entry
from rankup.snapshots.manifest import Manifest, SavedTensor
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
    """What differs in the tensors and the plain values that all ranks share, in the order of the state's names; then in
    what the script has registered, as the first rank has it."""
    found = []
    theirs, mine = right[1].tensors, left[1].tensors
    for name in [*mine, *(name for name in theirs if name not in mine)]:
        a, b = _kind(mine.get(name)), _kind(theirs.get(name))
        if a != b:
            found.append(TensorDifference(name, a, b))
        elif largest := largest_difference(load_tensor(*left, name), load_tensor(*right, name)):
            found.append(TensorDifference(name, a, b, largest))
    values = [load_plain(entry.path / VALUES) for entry, _ in (left, right)]
    for name in sorted(values[0].keys() | values[1].keys()):
        pair = [_shown(value, name) for value in values]
        if pair[0] != pair[1]:
            found.append(TensorDifference(name, pair[0], pair[1]))
    return [*found, *_registered(registered(*left), registered(*right))]


def registered(entry: Entry, manifest: Manifest) -> dict[str, Any]:
    """Name → the state of what the script has registered, as the first rank has it."""
    state = load_rank_state(entry.path, manifest, min(manifest.states)) if manifest.states else {}
    held = state.get("registered", {})
    return {name: value for name, value in held.items() if not name.startswith("run.")}  # rankup's own


def _registered(left: dict[str, Any], right: dict[str, Any]) -> Iterator[TensorDifference]:
    mine, theirs = dict(_leaves(left)), dict(_leaves(right))
    for name in [*mine, *(name for name in theirs if name not in mine)]:
        a, b = mine.get(name), theirs.get(name)
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and _form(a) == _form(b):
            if largest := largest_difference(a, b):
                yield TensorDifference(name, _form(a), _form(b), largest)
        elif (shown := (_described(mine, name), _described(theirs, name)))[0] != shown[1]:
            yield TensorDifference(name, *shown)


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in inside:
        path = f"{name}/{key}" if name else str(key)
        if isinstance(item, (dict, list, tuple)):
            yield from _leaves(item, path)
        else:
            yield path, item


def _form(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _described(values: dict[str, Any], name: str) -> str:
    found = values.get(name)
    return _form(found) if isinstance(found, torch.Tensor) else _shown(values, name)


def largest_difference(a: torch.Tensor, b: torch.Tensor) -> float:
    """0 if both hold the same numbers: a NaN equals a NaN here, and 0 equals -0."""
    if not a.numel() or torch.equal(a, b):
        return 0.0
    wide = torch.complex128 if a.is_complex() else torch.float64
    a, b = a.to(wide), b.to(wide)
    same = (a == b) | (a.isnan() & b.isnan())
    gap = torch.where(same, 0.0, (a - b).abs())
    return float(torch.where(gap.isnan(), torch.inf, gap).max())


def _kind(saved: SavedTensor | None) -> str:
    return f"{saved.dtype}{list(saved.shape)}" if saved else "nothing"


def _shown(values: dict[str, Any], name: str) -> str:
    return repr(values[name]) if name in values else "nothing"
