"""The values in a file that ``torch.save`` wrote, as digests: one for each name of a checkpoint.

Two trainings may write the same values as other bytes. A file may hold objects of classes that are not here, such as
the script's own: then what they are made of counts. Only torch's, NumPy's and a few plain classes are made.
"""

from __future__ import annotations

import pickle
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from rankup.runtime.tracing.digest import digest

_KNOWN = ("torch", "numpy", "collections", "_codecs", "argparse")
_PLAIN = {"builtins": {"set", "frozenset", "bytearray", "complex", "slice", "range", "list", "dict", "tuple"}}


class _Thing:
    """An object of a class that is not made here: the values of which it is made."""

    def __new__(cls, *values: Any, **_: Any) -> _Thing:
        made = object.__new__(cls)
        made.__dict__["parts"] = [list(values)]
        return made

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.__dict__["parts"].append(state)

    def __setitem__(self, name: Any, value: Any) -> None:
        self.__dict__["parts"].append([name, value])

    def append(self, value: Any) -> None:
        self.__dict__["parts"].append(value)

    def extend(self, values: Any) -> None:
        self.__dict__["parts"].extend(values)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] in _KNOWN or name in _PLAIN.get(module, ()):
            return super().find_class(module, name)
        return type(f"{module}.{name}", (_Thing,), {})


def saved_values(path: Path) -> dict[str, str] | None:
    """None if the file cannot be read."""
    reader = types.ModuleType("reader")
    reader.Unpickler = _Unpickler  # type: ignore[attr-defined]
    reader.load = pickle.load  # type: ignore[attr-defined]
    try:
        try:
            value = torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError:
            value = torch.load(path, map_location="cpu", weights_only=False, pickle_module=reader)
        # The parts of a file with nothing but weights say no more than the whole.
        if isinstance(value, Mapping) and not all(isinstance(part, torch.Tensor) for part in value.values()):
            return {str(name): digest(_plain(part)) for name, part in value.items()}
        return {"": digest(_plain(value))}
    except Exception:  # any that a class in the file raises
        return None


def _plain(value: Any) -> Any:
    """Tensors, numbers, texts, lists and dicts."""
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if type(value).__module__ == "numpy":
        return (
            [str(value.dtype), list(value.shape), value.tobytes()]
            if hasattr(value, "tobytes")
            else str(value)
        )
    if getattr(value, "__dict__", None):
        return [type(value).__qualname__, _plain(vars(value))]
    return value
