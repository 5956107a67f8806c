"""The state with which a script ends, in numbers: what the code after a loop did with the weights, and what is
registered. A snapshot has neither the first, nor the last steps before a ``break``.

Rank 0 of a traced run writes ``final-state.pt``. Rounding differs between numbers of processes, so that ``rankup
verify`` needs the numbers there, and not only their hashes. ``python -m rankup.runtime.tracing.final_state A B`` prints
what differs in two of these files, in the form of ``rankup snapshots diff --json``.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from rankup.core.files import replacing
from rankup.runtime.checkpointing.packing import as_torch, is_packed, unpacked
from rankup.runtime.checkpointing.registered_state import is_per_rank
from rankup.runtime.context import RunContext
from rankup.snapshots.diff import largest_difference
from rankup.strategies import state as by_name

FINAL_STATE = "final-state.pt"
_OWN = "run."  # what a run registers by itself: sums of this rank alone, times
_OPTIONS = "/optimizer/groups/"
_PLAIN = (bool, int, float, str, type(None))


def write(runs: Sequence[RunContext], folder: Path) -> None:
    """All trainings of this process, the later ones under ``2/``, ``3/``."""
    if not all(map(_has_all, runs)):
        return
    values: dict[str, Any] = {}
    for number, run in enumerate(runs, start=1):
        prefix = f"{number}/" if number > 1 else ""
        values |= {prefix + name: value for name, value in _of_run(run)}
    double = all(run.precision.name == "fp64" for run in runs)
    with replacing(folder / FINAL_STATE) as file:
        torch.save({"double": double, "values": values}, file)


def _has_all(run: RunContext) -> bool:
    """Whether this rank has the whole state of the models without the other ranks, which may have ended."""
    tensors = [tensor for model in run.models for tensor in run.strategy.tensors(model).values()]
    whole = not any(hasattr(tensor, "to_local") for tensor in tensors)
    return whole and run.strategy.every_name and run.strategy.snapshots


def _of_run(run: RunContext) -> Iterator[tuple[str, Any]]:
    for index, (model, optimizer) in enumerate(run.prepared):
        saved = by_name.state(run.strategy, model, optimizer)
        yield from _flat(f"{index}/model", saved["model"])
        yield from _flat(f"{index}/optimizer", saved.get("optimizer", {}))
    for name, thing in sorted(run.registered.items()):
        if not (name.startswith(_OWN) or is_per_rank(thing) or getattr(thing, "timed", False)):
            yield from _flat(f"registered/{name}", thing.state_dict())
    for name, value in sorted(run.metrics.items()):
        yield f"metrics/{name}", float(value)


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """(path, tensor or plain value) of everything in ``value``; objects of other kinds are left out."""
    if isinstance(value, torch.Tensor):
        yield name, value.detach().cpu()
    elif isinstance(value, _PLAIN):
        yield name, value
    elif is_packed(value):
        array = unpacked(value)
        tensor = as_torch(array)
        yield from _flat(name, array.tolist() if tensor is None else tensor)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(f"{name}/{key}", inner)
    elif isinstance(value, (list, tuple)):
        yield f"{name}/length", len(value)
        for index, inner in enumerate(value):
            yield from _flat(f"{name}/{index}", inner)


def compare(left: Path, right: Path) -> list[dict[str, Any]]:
    """Records like those of ``rankup snapshots diff``. ``largest`` is None if rounding cannot explain the
    difference: another shape, another integer."""
    mine, theirs = (torch.load(path, weights_only=True) for path in (left, right))
    double = mine["double"] and theirs["double"]
    found = []
    for name in [*mine["values"], *(name for name in theirs["values"] if name not in mine["values"])]:
        a, b = (state["values"].get(name, "nothing") for state in (mine, theirs))
        if not _same(a, b):
            # An option is chosen, as a rule, and not computed: it has no distance.
            kinds = [repr(v) if _OPTIONS in name else _kind(v, double=double) for v in (a, b)]
            found.append(
                {"name": name, "left": kinds[0], "right": kinds[1], "largest": _distance(a, b, kinds)}
            )
    return found


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.shape == b.shape and a.dtype == b.dtype and not largest_difference(a, b)
    return repr(a) == repr(b)


def _kind(value: Any, *, double: bool) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    # A number of Python's has 64 bits, but comes from a training that may have fewer.
    return ("float64" if double else "float32") if isinstance(value, float) else repr(value)


def _distance(a: Any, b: Any, kinds: Sequence[str]) -> float | None:
    if kinds[0] != kinds[1] or not isinstance(a, (float, torch.Tensor)):
        return None
    if isinstance(a, float):
        apart = abs(a - b) / max(1.0, abs(a))
        return math.inf if math.isnan(apart) else apart
    return largest_difference(a, b) if a.is_floating_point() or a.is_complex() else None


if __name__ == "__main__":
    print(json.dumps(compare(Path(sys.argv[1]), Path(sys.argv[2]))))
