"""What tells whether a value has changed, in this process and in the next one: a digest of its content.

No code of the script runs: no property, no ``state_dict``, no ``repr`` of its own.
"""

from __future__ import annotations

import array
import hashlib
import itertools
import marshal
import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable
from enum import Enum
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, NamedTuple

import torch

from rankup.runtime.seed import generator_access
from rankup.snapshots.tensor_checksum import as_bytes
from rankup.strategies.clipping import local

SIMPLE = (bool, int, float, complex, str, bytes, type(None))
_NUMBERS = (("decimal", "Decimal"), ("fractions", "Fraction"))
FUNCTION, OBJECT = "function", "object"
_FUNCTIONS = (
    FunctionType,
    BuiltinFunctionType,
    MethodDescriptorType,
    WrapperDescriptorType,
    MethodWrapperType,
)
_CONTAINERS = (list, tuple, dict, set, frozenset, deque, OrderedDict, Counter, defaultdict)
# Numbers of a large tensor that are looked at, evenly spread: an average that moves changes nearly all of its numbers.
SAMPLED = 4096
_MOST_ITEMS = 100_000  # of a container
_MOST_CONTENT = 1_000  # items of a container whose content a snapshot notes
_LONGEST = 40  # characters of a value in a message
_LONGEST_NUMBER = 8  # characters of one that is written with all its digits


class Mark(NamedTuple):
    """``digest`` is the same for the same content. ``text`` is for messages. ``content``: [the value], if it is plain
    and small. ``plain``: whether it is a plain value, and not the state of an object. ``named``: ``FUNCTION`` if it
    tells only which function, class or module this is, or the class of an object of the script's, ``OBJECT`` if it
    tells only that of a library's."""

    digest: str
    text: str
    content: Any = None
    plain: bool = True
    named: str = ""


def mark_of(value: Any) -> Mark | None:
    """Of a plain value: a number, a text, a container of these. None for anything else."""
    value = _as_python(value)
    kind = type(value)
    if kind in SIMPLE:
        text = repr(value)
        short = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
        if kind is float and len(text) > _LONGEST_NUMBER:
            short = f"{value:.6g}"
        return Mark(text if len(text) <= _LONGEST else _hashed(text.encode()), short, [value])
    if (kind.__module__, kind.__name__) in _NUMBERS:
        return Mark(repr(value), repr(value)[:_LONGEST])
    if isinstance(value, Enum):
        return Mark(f"{kind.__name__}.{value.name}", f"{kind.__name__}.{value.name}")
    if kind in (bytearray, array.array):
        return Mark(_hashed(memoryview(value).cast("B")), f"{kind.__name__} of {len(value)}")
    if isinstance(value, _CONTAINERS) and len(value) <= _MOST_ITEMS:
        try:
            found = _hashed(_written(value))
        except ValueError:  # it holds something else
            return None
        held = list(value) if kind is deque else value
        small = len(value) <= _MOST_CONTENT and _is_builtin(held)
        return Mark(f"{kind.__name__} {found}", f"{kind.__name__} of {len(value)}", [held] if small else None)
    if kind is itertools.count:
        return Mark(repr(value), repr(value))
    # An iterator of a list, dict, range.
    if kind.__module__ == "builtins" and hasattr(kind, "__length_hint__"):
        return Mark(f"{kind.__name__} {value.__length_hint__()}", kind.__name__)
    return None


def mark_of_state(value: Any) -> Mark | None:
    """Of a tensor, an array, a generator of random numbers; else None."""
    text = f"{type(value).__name__}"
    if isinstance(value, torch.Tensor):
        shape = tuple(value.shape)
        one = _readable(value) and value.numel() == 1 and not value.is_complex()
        number = f" {value.item():.6g}" if one else ""
        return Mark(_of_tensor(value), f"{text}{number or f' of shape {shape}'}", plain=False)
    # A generator of a class of the script's own would run its code.
    own = isinstance(value, random.Random) and type(value) is not random.Random
    if (access := None if own else generator_access(value)) is not None:
        state = access[0]()
        content = state.tolist() if isinstance(state, torch.Tensor) else state
        return Mark(_hashed(repr(content).encode()), text, plain=False)
    if type(value).__module__ == "numpy" and hasattr(value, "tobytes") and hasattr(value, "dtype"):
        flat = value.reshape(-1)
        every = max(1, flat.size // SAMPLED)
        content = repr((value.shape, str(value.dtype), flat[::every].tolist()))
        return Mark(_hashed(content.encode()), f"array of shape {value.shape}", plain=False)
    return None


def mark_of_name(value: Any, *, own: bool = False) -> Mark:
    """Of a function, a class or a module: which one it is. Of anything else: its class, the script's ``own`` or a
    library's. What they hold is looked at apart."""
    function = value.__func__ if isinstance(value, MethodType) else value
    if isinstance(function, ModuleType):
        name = function.__name__
    elif isinstance(function, (*_FUNCTIONS, type)):
        name = f"{getattr(function, '__module__', None)}.{function.__qualname__}"  # a builtin type's method has none
        if isinstance(function, FunctionType):  # several may have one name: <lambda>
            name += f":{function.__code__.co_firstlineno} {_hashed(repr(_code(function.__code__)).encode())}"
    else:
        kind = type(value)
        name, text = f"{kind.__module__}.{kind.__qualname__}", f"a {kind.__qualname__}"
        return Mark(name, text, plain=False, named=FUNCTION if own else OBJECT)
    return Mark(f"the {name}", function.__name__, plain=False, named=FUNCTION)


def _code(code: CodeType) -> list[Any]:
    """What it does: two lambdas of one line may differ in a constant alone."""
    constants = [_code(each) if isinstance(each, CodeType) else _plain(each) for each in code.co_consts]
    return [code.co_code, code.co_names, constants]


def is_function(value: Any) -> bool:
    """Whether it has a name, which tells all of it but what it holds."""
    return isinstance(value, (*_FUNCTIONS, MethodType, ModuleType, type))


def differ(was: Mark, now: Mark) -> bool:
    """Whether a value has changed. A library's object in the place of a plain value, or the other way round, is
    something that the script has opened or closed."""
    if OBJECT in (was.named, now.named) and not (was.named and now.named):
        return False
    return was.digest != now.digest


def _is_builtin(value: Any) -> bool:
    """Whether a snapshot can hold it as it is."""
    kind = type(value)
    if kind is dict:
        return all(_is_builtin(item) for pair in value.items() for item in pair)
    return kind in SIMPLE or (kind in (list, tuple, set) and all(_is_builtin(item) for item in value))


def joined(marks: Iterable[tuple[str, Mark]], text: str) -> Mark:
    """One mark for the whole state of an object."""
    return Mark(_hashed(repr([(name, mark.digest) for name, mark in marks]).encode()), text, plain=False)


def _of_tensor(tensor: torch.Tensor) -> str:
    """Of this rank's part of it. A large one is sampled, and nothing of it is copied."""
    kind = f"{tensor.dtype} {tuple(tensor.shape)}"
    if not _readable(tensor):
        return f"{kind} {tensor.layout}"
    flat = local(tensor.detach()).flatten()  # a view, if it is contiguous
    sampled = flat[:: max(1, flat.numel() // SAMPLED)].contiguous().cpu()
    return f"{kind} {_hashed(as_bytes(sampled) if sampled.numel() else b'')}"


def _readable(tensor: torch.Tensor) -> bool:
    return not (tensor.is_meta or tensor.is_nested or tensor.is_quantized) and tensor.layout is torch.strided


def _written(value: Any) -> bytes:
    """By marshal, in C: a data set's list of 60,000 names is looked at in each save. Its version 2 writes equal values
    alike, and ValueError says that it holds something else than plain values."""
    if type(value) in (list, tuple, dict):
        try:
            return marshal.dumps(value, 2)
        except ValueError:
            pass
    return marshal.dumps(_plain(value), 2)


def _plain(value: Any) -> Any:
    """The same of builtin kinds only; a set in one order."""
    if isinstance(value, dict):
        return [(key, _plain(item)) for key, item in value.items()]
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    if isinstance(value, (list, tuple, deque)):
        return [_plain(item) for item in value]
    return _as_python(value)


def _as_python(value: Any) -> Any:
    """A number of NumPy's as Python's."""
    one = type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0 and hasattr(value, "item")
    return value.item() if one else value


def _hashed(content: Any) -> str:
    return hashlib.blake2b(content, digest_size=12).hexdigest()
