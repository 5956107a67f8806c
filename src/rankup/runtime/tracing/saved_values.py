"""The values in a file that a script saved, as digests: one for each tensor, number and text in it.

Two trainings may write the same values as other bytes. A file may hold objects of classes that are not here, such as
the script's own: then what they are made of counts. Only tensors, arrays, generators and a few plain classes are made:
a file may name any function to be called.

What tells how and when a process was started is marked as ``ASIDE``: texts and paths, argparse's arguments, and states
of the global generators. Steps show whether a training depends on these.
"""

from __future__ import annotations

import argparse
import io
import json
import pickle
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch

from rankup.runtime.digest import digest

ASIDE = "aside "  # before a digest
# What a file may make, by module. Of the names that end in * any that begins so.
_MADE = {
    "builtins": ("set", "frozenset", "bytearray", "complex", "slice", "range", "list", "dict", "tuple"),
    "collections": ("OrderedDict", "Counter", "deque", "defaultdict"),
    "argparse": ("Namespace",),
    "_codecs": ("encode",),  # the bytes of a pickle of an old protocol
    "torch": ("Size", "device", "Tensor"),
    "torch._utils": ("_rebuild_*",),
    "torch._tensor": ("_rebuild_from_type_v2",),
    "torch.nn.parameter": ("Parameter", "Buffer"),
    "torch.serialization": ("_get_layout",),
    "numpy": ("ndarray", "dtype"),
    **dict.fromkeys(("numpy.core.multiarray", "numpy._core.multiarray"), ("_reconstruct", "scalar")),
    **dict.fromkeys(("numpy.core.numeric", "numpy._core.numeric"), ("_frombuffer",)),
    "numpy.random._pickle": ("__randomstate_ctor", "__generator_ctor", "__bit_generator_ctor"),
    "numpy.random.bit_generator": ("SeedSequence", "__pyx_unpickle_SeedSequence"),
    **{f"numpy.random._{kind.lower()}": (kind,) for kind in ("MT19937", "PCG64", "Philox", "SFC64")},
}
_MOST = 20_000  # values of one file; those after them are one
_LARGEST_TEXT = 64 << 20  # bytes of a JSON file
_CUDA_STATE = 16  # bytes of a CUDA generator's state


class _Thing:
    """An object of a class that is not made here: the values of which it is made."""

    def __new__(cls, *values: Any, **_: Any) -> _Thing:
        made = object.__new__(cls)
        made.__dict__["parts"] = [list(values)]
        return made

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __repr__(self) -> str:
        """The same in each process: it may be a key, and so a part of a name."""
        return (
            f"{type(self).__name__.rpartition('.')[2]}({', '.join(map(repr, (_inner(self) or {}).values()))})"
        )

    def __setstate__(self, state: Any) -> None:
        self.__dict__["parts"].append(state)

    def __setitem__(self, name: Any, value: Any) -> None:
        self.__dict__["parts"].append({name: value})

    def append(self, value: Any) -> None:
        self.__dict__["parts"].append(value)

    def extend(self, values: Any) -> None:
        self.__dict__["parts"].extend(values)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch.storage", "_load_from_bytes"):
            return lambda content: _saved_by_torch(io.BytesIO(content))
        # A name with a dot in it reaches beyond its module: ``torch.serialization`` has ``os.system``.
        if "." not in name and _is_made(module, name):
            return super().find_class(module, name)
        return type(f"{module}.{name}", (_Thing,), {})


def _is_made(module: str, name: str) -> bool:
    return (module == "torch" and isinstance(vars(torch).get(name), torch.dtype)) or any(
        fnmatchcase(name, known) for known in _MADE.get(module, ())
    )


def saved_values(path: Path) -> dict[str, str] | None:
    """Name → digest; None if the file holds none of torch.save, pickle and JSON."""
    with path.open("rb") as file:
        begin = file.read(4)
    readers: list[Callable[[Path], Any]] = []
    if begin == b"PK\x03\x04":
        readers = [_saved_by_torch]
    elif begin[:1] == b"\x80":
        readers = [_saved_by_torch, _pickled]
    elif path.suffix == ".json" and path.stat().st_size <= _LARGEST_TEXT:
        readers = [_json]
    for reader in readers:
        with suppress(Exception):  # any that a class in the file raises
            return _digests(reader(path))
    return None


def _saved_by_torch(file: Path | io.BytesIO) -> Any:
    reader = types.ModuleType("reader")
    reader.Unpickler = _Unpickler  # type: ignore[attr-defined]
    reader.load = lambda file, **options: _Unpickler(file, **options).load()  # type: ignore[attr-defined]
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        if isinstance(file, io.BytesIO):
            file.seek(0)
        return torch.load(file, map_location="cpu", weights_only=False, pickle_module=reader)


def _pickled(path: Path) -> Any:
    """One value after another."""
    found = []
    with path.open("rb") as file:
        end = path.stat().st_size
        while file.tell() < end:
            found.append(_Unpickler(file).load())
    return found[0] if len(found) == 1 else found


def _json(path: Path) -> Any:
    return json.loads(path.read_bytes())


def _digests(value: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    rest: list[str] = []
    for name, part, aside in _parts(value, "", set(), aside=False):
        said = (ASIDE if aside else "") + digest(part)
        if len(found) < _MOST:
            found[f"{name} {len(found)}" if name in found else name] = said
        elif not aside:
            rest.append(said)
    return {**found, "the rest": digest(rest)} if rest else found


def _parts(value: Any, name: str, above: set[int], *, aside: bool) -> Iterator[tuple[str, Any, bool]]:
    """(name, what can be digested, whether it is ``ASIDE``) of each value in ``value``."""
    inner = _inner(value)
    if _is_generator_state(value):
        yield name, _digestible(value), True
    elif inner is None:
        yield name, _digestible(value), aside or not _counts(value)
    elif id(value) not in above:
        above = {*above, id(value)}
        aside = aside or isinstance(value, argparse.Namespace)
        for key, part in inner.items():
            yield from _parts(part, f"{name}.{key}" if name else str(key), above, aside=aside)


def _inner(value: Any) -> Mapping[Any, Any] | None:
    """What a container or an object is made of; None of a single value."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, (list, tuple)):
        return dict(enumerate(value))
    if isinstance(value, _Thing):
        made, *states = value.__dict__["parts"]
        attributes: dict[Any, Any] = dict(enumerate(made))
        for number, state in enumerate(states):
            attributes |= state if isinstance(state, Mapping) else {f"state {number}": state}
        return attributes
    if isinstance(value, torch.Tensor) or type(value).__module__ == "numpy":
        return None
    return getattr(value, "__dict__", None) or None


def _counts(value: Any) -> bool:
    if type(value).__module__ == "numpy":
        return getattr(value, "dtype", None) is not None and value.dtype.kind not in "OSU"
    return isinstance(value, (torch.Tensor, bool, int, float, complex, bytes, bytearray, set, frozenset))


def _digestible(value: Any) -> Any:
    if isinstance(value, _Thing):
        return [_digestible(part) for part in value.__dict__["parts"]]
    if isinstance(value, (list, tuple)):
        return [_digestible(part) for part in value]
    if isinstance(value, bytearray):
        return bytes(value)
    if type(value).__module__ == "numpy":
        return (
            [str(value.dtype), list(value.shape), value.tobytes()]
            if hasattr(value, "tobytes")
            else str(value)
        )
    return value


def _is_generator_state(value: Any) -> bool:
    """Of torch, Python or NumPy."""
    if isinstance(value, torch.Tensor):
        sizes = (torch.get_rng_state().numel(), _CUDA_STATE)
        return value.dtype == torch.uint8 and value.dim() == 1 and value.numel() in sizes
    if isinstance(value, Mapping):
        return "bit_generator" in value
    if not isinstance(value, (list, tuple)) or not value:
        return False
    of_python = len(value) == 3 and isinstance(value[1], (list, tuple)) and len(value[1]) == 625
    return of_python or value[0] == "MT19937"
