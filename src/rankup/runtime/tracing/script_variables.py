"""The variables of the user's script, from its frames on the stack: advice can name them.

Used by the records of ``rankup verify``, and by the one warning of an ordinary run about state that is not registered.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType, FunctionType, ModuleType
from typing import Any

import torch

from rankup.runtime.live_objects import attributes_of
from rankup.runtime.tracing.digest import digest

_OURS = str(Path(__file__).parents[2]) + os.sep  # its own loops and workloads are not the user's script
_LIBRARY = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_MOST_ITEMS, _MOST_NUMBERS, _DEPTH = 2000, 100_000, 3
_REFERENCES = 3  # to a frame's dict: the frame, a variable, and the call that counts them


def namespaces() -> list[Mapping[str, Any]]:
    """The variables that the script's frames see, innermost first; those of modules last."""
    frames = list(script_frames())
    found: list[Mapping[str, Any]] = [frame.f_locals for frame in frames]
    found += [frame.f_globals for frame in frames if frame.f_globals is not frame.f_locals]
    main = sys.modules.get("__main__")
    if main is not None and not frames:  # as the interpreter ends
        found.append(vars(main))
    return found


def name_of(thing: object, spaces: list[Mapping[str, Any]]) -> str:
    """``"schedule"``, or ``"trainer.schedule"``, if a variable or what it holds is it; else ``""``."""
    for space in spaces:
        for name, value in list(space.items()):
            if value is thing and not name.startswith("__"):
                return name
    for space in spaces:
        for name, value in list(space.items()):
            for part, held in [*_attributes(value).items(), *inside(value).items()]:
                if held is thing:
                    return f"{name}{part}" if part[0] == "[" else f"{name}.{part}"
    return ""


def inside(value: object) -> dict[str, Any]:
    """What a variable holds, by the text behind its name: attributes of an object, items of a short list or dict,
    variables of a closure. Nothing of torch's and rankup's own objects, of classes and of modules."""
    kind = type(value)
    if kind is FunctionType:  # an odd object may not tell its class
        found = dict[str, Any]()
        function: Any = value
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            with suppress(ValueError):  # not set yet
                found[name] = cell.cell_contents
        return found
    if kind in (dict, list, tuple) and len(value) <= _MOST_ITEMS:  # type: ignore[arg-type]
        items = value.items() if isinstance(value, dict) else enumerate(value)  # type: ignore[arg-type]
        return {f"[{key!r}]": item for key, item in list(items) if isinstance(key, (str, int))}
    if issubclass(kind, (type, ModuleType)) or str(kind.__module__).startswith(("rankup.", "torch.")):
        return {}
    return attributes_of(value)


def plain_variables() -> dict[str, str]:
    """Short digests of the plain values (numbers, strings, small tensors, lists and dicts of them) in the innermost
    function that trains, in its module, and in its ``self``."""
    frame = next(script_frames(), None)
    if frame is None:
        return {}
    spaces = [frame.f_locals] if frame.f_locals is frame.f_globals else [frame.f_globals, frame.f_locals]
    found: dict[str, str] = {}
    for space in spaces:
        for name, value in list(space.items()):
            if not name.startswith("_") and _plain(value):
                found[name] = digest(_ordered(value))[:16]
        for name, value in list(_attributes(space.get("self")).items()):
            if _plain(value):
                found[f"self.{name}"] = digest(_ordered(value))[:16]
    return found


def script_frames() -> Iterator[FrameType]:
    """The frames of the script, outside of rankup and libraries, from the innermost on."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not is_library(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def is_library(path: str) -> bool:
    return path.startswith((_OURS, "<frozen", *_LIBRARY))


def variables_of(frame: FrameType) -> dict[str, Any]:
    """The variables of a frame. Before Python 3.13 the frame keeps the dict that it gives, and so this step's tensors
    for as long as it runs: it is emptied, unless the script has it as well (``locals()``)."""
    held = frame.f_locals
    found = dict(held)
    if (
        isinstance(held, dict)
        and frame.f_code.co_flags & CO_OPTIMIZED
        and sys.getrefcount(held) <= _REFERENCES
    ):
        held.clear()
    return found


def _attributes(value: object) -> dict[str, Any]:
    """The attributes of an instance of the script's own classes; none for models, classes and tensors."""
    kind = type(value)
    if issubclass(kind, (type, torch.Tensor, torch.nn.Module)) or kind.__module__ == "builtins":
        return {}
    return attributes_of(value)


def _plain(value: object, depth: int = _DEPTH) -> bool:
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return True
    if isinstance(value, torch.Tensor):
        return value.numel() <= _MOST_NUMBERS and value.layout == torch.strided and not value.is_meta
    if isinstance(value, (list, tuple, set, frozenset, deque)) and depth and len(value) <= _MOST_ITEMS:
        return all(_plain(item, depth - 1) for item in list(value))
    if isinstance(value, dict) and depth and len(value) <= _MOST_ITEMS:
        return all(_plain(key, 0) and _plain(item, depth - 1) for key, item in list(value.items()))
    return False


def _ordered(value: object) -> object:
    """``value`` in an order that all processes share: a set has another one in each."""
    if isinstance(value, (set, frozenset)):
        return sorted(repr(item) for item in value)
    return list(value) if isinstance(value, deque) else value
