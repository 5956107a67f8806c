"""The values that a script holds: all that its frames around a loop, and its objects, reach.

It looks at plain values and at objects with a state; of other libraries' objects at the state of modules, optimizers
and schedules. The path of a value is how the script would write it: ``best``, ``trainer.best``, ``history['loss']``.
The state of a module, an optimizer or a schedule is one value. Nothing of the script runs, and its source is not read.
"""

from __future__ import annotations

import functools
import gc
import itertools
import sys
from collections import deque
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping
from enum import Enum
from inspect import CO_OPTIMIZED
from types import (
    CodeType,
    FrameType,
    FunctionType,
    GeneratorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from rankup.runtime.call_site import is_library, script_frames
from rankup.runtime.data.portions import Batches
from rankup.runtime.unregistered.marks import (
    SIMPLE,
    Mark,
    is_function,
    joined,
    mark_of,
    mark_of_name,
    mark_of_state,
)

#: Objects that one walk looks at; what comes after them is not watched.
MOST_OBJECTS = 20_000
_MOST_ITEMS = 2_000  # of a container that is not plain
_STATEFUL = (nn.Module, Optimizer, LRScheduler)
_ITERATORS_IN_EACH_OTHER = 4
_REFERENCES = 3  # to a frame's dict: the frame, a variable, and the call that counts them
#: Of a module: its class, and the names of the modules in it.
PARTS = " parts"
ITERATORS = (
    map,
    filter,
    zip,
    enumerate,
    itertools.cycle,
    itertools.chain,
    itertools.islice,
    itertools.repeat,
)
# The standard library's objects that only hold what the script puts there.
_NAMESPACES = (
    ("types", "SimpleNamespace"),
    ("argparse", "Namespace"),
    ("queue", "Queue"),
    ("queue", "LifoQueue"),
    ("queue", "PriorityQueue"),
    ("collections", "ChainMap"),
    ("_thread", "_local"),
)
# torch's objects that may have a state which training changes; a SummaryWriter is none of them.
_TORCH = ("torch.nn.", "torch.optim.", "torch.utils.data.", "torch.amp.", "torch.ao.")
# torch's own attributes of each module and optimizer, whose content is the state of the object.
OF_TORCH = frozenset({*vars(nn.Module()), *vars(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0))}) | {
    "_step_count",
    "_opt_called",
    "_warned_capturable_if_run_uncaptured",
    "_is_initial",
    "_get_lr_called_within_step",
}


class Walk:
    """One look at everything. ``found`` holds the marks by path, ``same`` the further paths of a value and the one
    under which it was found, ``things`` what has a state, by path, ``objects`` what is at each path that leads further,
    ``names`` the marks that tell only what that is, ``seen`` the ids of all that was looked at, and ``left_out`` the
    paths of what exceeded the budget."""

    def __init__(self, known: Container[Any], held: Container[int] = (), whole: Container[int] = ()) -> None:
        """``known``: ids of what snapshots hold, and (id, name) of attributes that they hold. ``held``: ids
        of optimizers of which they hold the state alone, and no other attributes. ``whole``: ids of what was prepared
        or registered as a whole."""
        self.found: dict[str, Mark] = {}
        self.same: dict[str, str] = {}
        self._paths: dict[int, str] = {}
        self.things: dict[str, Any] = {}
        self.objects: dict[str, Any] = {}
        self.names: dict[str, Mark] = {}
        self.whole: dict[str, int] = {}  # the ids of what was prepared or registered as a whole, by path
        self.left_out: list[str] = []
        # Attributes that an object has from its class, until it sets them.
        self.inherited: dict[str, Mark] = {}
        self.variables: Mapping[str, Any] = {}  # where it began
        self._known = known
        self._held = held
        self._whole = whole
        self.seen: set[int] = set()
        self._kept: list[Any] = []  # else another object could get the id of one that is gone
        self._level: deque[tuple[str, Any]] = deque()

    def look(self, roots: Mapping[str, Any]) -> Walk:
        self.variables = roots
        self._level.extend(roots.items())
        while self._level:
            path, value = self._level.popleft()
            if len(self.seen) >= MOST_OBJECTS:
                self.left_out.append(path)
                break
            self._visit(path, value)
        return self

    def by_path(self) -> dict[str, Mark]:
        """The marks, also by the further paths of a value."""
        first = {**self.names, **self.found}
        return {**{path: first[at] for path, at in self.same.items() if at in first}, **first}

    def _visit(self, path: str, value: Any) -> None:
        # A small number, or None, is one object everywhere: its id tells nothing.
        if type(value) not in SIMPLE:
            if id(value) in self._whole:
                self.whole.setdefault(path, id(value))
            if id(value) in self._known and not is_one_everywhere(value):
                return
            if id(value) in self.seen:
                if id(value) in self._paths:
                    self.same.setdefault(path, self._paths[id(value)])
                return
            self._paths[id(value)] = path
        try:
            mark = None if self._holds_known(value) else mark_of(value)
        except Exception:  # an object that cannot be looked at
            return
        if mark is not None:
            self.found.setdefault(path, mark)
            if type(value) not in SIMPLE:
                self._note(value)
            if has_own_attributes(value):
                self.objects.setdefault(path, value)
                self._add(path, attributes_of(value), ".{}")
            return
        self._note(value)
        if (mark := mark_of_state(value)) is not None:
            self.found.setdefault(path, mark)
            self.things.setdefault(path, value)
            return
        self.objects.setdefault(path, value)
        self.names.setdefault(path, mark_of_name(value, own=not of_library(type(value))))
        if isinstance(value, (list, tuple, deque, dict)):
            items = list(value.items() if isinstance(value, dict) else enumerate(value))
            kind = type(value).__name__
            self.found.setdefault(path, Mark(f"{kind} {len(items)}", f"{kind} of {len(items)}"))
            if len(items) > _MOST_ITEMS:
                self.left_out.append(path)
            named = ((key_of(key, at), item) for at, (key, item) in enumerate(items[:_MOST_ITEMS]))
            self._add(path, named, "[{!r}]")
            if has_own_attributes(value):
                self._add(path, attributes_of(value), ".{}")
        elif isinstance(value, GeneratorType):
            if not is_library(value.gi_code.co_filename):
                self._generator(path, value)
        elif isinstance(value, Batches):  # a loop of rankup's that a variable holds
            pass
        elif isinstance(value, ITERATORS):  # their places are in what they refer to
            self._add(path, enumerate(gc.get_referents(value)), "[{}]")
        elif isinstance(value, FunctionType):
            self._function(path, value)
        elif isinstance(value, functools.partial):
            parts = {"func": value.func, "args": value.args, "keywords": value.keywords}
            self._add(path, parts.items(), ".{}")
        elif isinstance(value, MethodType):
            self._add(path, [("__self__", value.__self__)], ".{}")
        elif isinstance(value, ModuleType):
            if not is_library(getattr(value, "__file__", None) or "<frozen"):
                self._add(path, _public(vars(value)), ".{}")
        elif isinstance(value, type):
            if not of_library(value):
                self._add(path, _public(vars(value)), ".{}")
        elif is_watched(type(value)):
            self._object(path, value)

    def _holds_known(self, value: Any) -> bool:
        """Whether an item of a small container is declared: then the container is no value of its own."""
        if not isinstance(value, (list, tuple, dict)) or len(value) > _MOST_ITEMS:
            return False
        items = value.values() if isinstance(value, dict) else value
        return any(type(item) not in SIMPLE and id(item) in self._known for item in items)

    def _generator(self, path: str, value: GeneratorType[Any, Any, Any]) -> None:
        """Its place, those of the iterators that it goes over, and its plain variables are one value: one that has not
        begun has none of these."""
        frame = value.gi_frame
        variables = {} if frame is None else variables_of(frame)
        marks = [(name, mark) for name, held in variables.items() if (mark := mark_of(held)) is not None]
        self.found.setdefault(path, joined([*_places(value), *marks], type(value).__name__))
        self._add(path, variables.items(), ".{}")

    def _object(self, path: str, value: Any) -> None:
        """An object of torch's or of the script's: its state as one value, and its other attributes."""
        state = list(self._state(value))
        if isinstance(value, nn.Module) and (id(value), PARTS) not in self._known:
            # Also of one that has no tensors itself, as a Sequential.
            state.append((PARTS, Mark(" ".join([type(value).__qualname__, *value._modules]), "")))
        if state:
            self.found.setdefault(path, joined(state, f"a {type(value).__name__}"))
            self.things.setdefault(path, value)
        own = isinstance(value, _STATEFUL)
        foreign = own and of_library(type(value)) and not _is_torch(own_class(type(value)))
        attributes = [
            (name, held)
            for name, held in attributes_of(value)
            if not (own and name in OF_TORCH)
            and (id(value), name) not in self._known
            and not (foreign and mark_of(held) is not None)  # of a library: its state counts
            # A weight that its module computes anew in each forward pass, as a pruned one.
            and not (isinstance(value, nn.Module) and getattr(held, "grad_fn", None) is not None)
        ]
        if isinstance(value, LRScheduler):  # whose plain attributes are its state
            attributes = [(name, held) for name, held in attributes if mark_of(held) is None]
        self._add(path, attributes, ".{}")
        if isinstance(value, nn.Module):
            self._add(
                path, [(name, child) for name, child in value._modules.items() if child is not None], ".{}"
            )
        if not of_library(kind := own_class(type(value))):
            mine = {name for name, _ in attributes_of(value)}
            for name, held in _public(vars(kind)):
                mark = mark_of_name(held) if is_function(held) else mark_of(held)
                if name not in mine and mark is not None:
                    self.inherited.setdefault(f"{path}.{name}", mark)
            self._add(kind.__name__, _public(vars(kind)), ".{}")

    def _state(self, value: Any) -> Iterator[tuple[str, Mark]]:
        """The tensors of a module, the state and options of an optimizer, as far as they are not known."""
        tensors: list[tuple[str, Any]] = []
        if isinstance(value, nn.Module):
            tensors = [(name, held) for name, held in (*value._parameters.items(), *value._buffers.items())]
        elif isinstance(value, Optimizer) and id(value) not in self._held:
            fields = [
                item for held in value.state.values() if isinstance(held, Mapping) for item in held.items()
            ]
            options = [item for group in value.param_groups for item in group.items() if item[0] != "params"]
            tensors = [*fields, *options]
        elif isinstance(value, LRScheduler):
            tensors = [(name, held) for name, held in vars(value).items() if name not in OF_TORCH]
        for name, held in tensors:
            if held is None or id(held) in self._known:
                continue
            mark = mark_of(held) or mark_of_state(held)
            if mark is not None:
                self._note_shared(held)
                yield name, mark

    def _function(self, path: str, function: FunctionType) -> None:
        if is_library(function.__code__.co_filename):
            return
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
        for name, cell in cells:
            try:
                self._add(path, [(name, cell.cell_contents)], ".{}")
            except ValueError:  # not set yet
                continue
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        defaults = function.__defaults__ or ()
        self._add(path, zip(names[len(names) - len(defaults) :], defaults, strict=True), ".{}")
        self._add(path, (function.__kwdefaults__ or {}).items(), ".{}")
        self._add(path, vars(function).items(), ".{}")

    def _add(self, path: str, named: Iterable[tuple[Any, Any]], form: str) -> None:
        self._level.extend((path + form.format(name), value) for name, value in named)

    def _note_shared(self, value: Any) -> None:
        """A tensor of a module may be in a variable as well. A small number is one object everywhere."""
        if isinstance(value, torch.Tensor):
            self._note(value)

    def _note(self, value: Any) -> None:
        self.seen.add(id(value))
        self._kept.append(value)


def _places(value: Any, depth: int = _ITERATORS_IN_EACH_OTHER) -> Iterator[tuple[str, Mark]]:
    """Of an iterator, and of those that it goes over. A generator's ``for`` keeps its iterator in no variable."""
    held: list[Any] = []
    if (plain := mark_of(value)) is not None:
        yield "", plain
    elif isinstance(value, GeneratorType):
        yield "", Mark(f"{None if value.gi_frame is None else value.gi_frame.f_lasti}", "")
        # Up to Python 3.10 its frame refers to them.
        held = gc.get_referents(value if sys.version_info >= (3, 11) else value.gi_frame)
    elif isinstance(value, Batches):
        return
    elif isinstance(value, ITERATORS):
        held = gc.get_referents(value)
    else:  # of a library: a DataLoader's counts its batches
        yield from (
            (name, mark) for name, each in attributes_of(value) if (mark := mark_of(each)) is not None
        )
    for each in held if depth else ():
        if hasattr(type(each), "__next__"):
            yield from _places(each, depth - 1)


def roots(codes: Container[CodeType], own: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of the script's frames on the stack that have one of ``codes``: the innermost frame first, then
    their modules, then what a run has by itself (``own``). A name that several frames have, now or later, is qualified
    by its function in the outer ones."""
    frames = [frame for frame in script_frames() if frame.f_code in codes]
    found: dict[str, Any] = {}
    taken: set[str] = set()
    for frame in frames:
        code = frame.f_code
        if code.co_flags & CO_OPTIMIZED:
            for name, value in _public(variables_of(frame)):
                found.setdefault(name if name not in taken else f"{code.co_name}.{name}", value)
            taken.update(code.co_varnames, code.co_cellvars)
    main = vars(sys.modules["__main__"]) if "__main__" in sys.modules else {}
    # As the interpreter ends there are no frames.
    for space in [frame.f_globals for frame in frames] or [main]:
        for name, value in _public(space):
            if name not in found and name not in taken:
                found[name] = value
            elif found.get(name, found) is not value:
                found.setdefault(f"{space.get('__name__')}.{name}", value)
    return found | {name if name not in found else f"prepared.{name}": thing for name, thing in own.items()}


def codes_of_script() -> frozenset[CodeType]:
    """Of the script's frames on the stack."""
    return frozenset(frame.f_code for frame in script_frames())


def attributes_of(value: Any) -> list[tuple[str, Any]]:
    """Of an object, also those in slots; none of a proxy that raises when it is asked."""
    try:
        found = dict(vars(value))
    except Exception:
        found = {}
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            member = vars(kind).get(name)
            if isinstance(member, MemberDescriptorType):
                try:
                    found.setdefault(name, member.__get__(value, kind))
                except AttributeError:  # not set
                    continue
    return list(found.items())


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


def _public(variables: Mapping[str, Any]) -> list[tuple[str, Any]]:
    ours = ("__", "_rankup")
    return [
        (name, value) for name, value in list(variables.items()) if not (name.startswith(ours) or name == "_")
    ]


def is_watched(kind: type) -> bool:
    """Whether objects of this class are looked into: the script's own, those of torch's that have a state, and modules,
    optimizers and schedules of whatever library."""
    if issubclass(kind, _STATEFUL):
        return True
    own = own_class(kind)
    return _is_torch(own) or not of_library(own) or (kind.__module__, kind.__name__) in _NAMESPACES


def cannot_be_set(thing: Any) -> bool:
    """Whether a thing has a place that nobody can set, or is one of fixed members: ``run.register`` refuses it."""
    kind = type(thing)
    moves = hasattr(kind, "__next__") and not hasattr(kind, "load_state_dict") and of_library(kind)
    return isinstance(thing, Enum) or moves


def has_own_attributes(value: Any) -> bool:
    """Whether it is a container of a class of the script's, with attributes beside its items."""
    plain = isinstance(value, (list, dict, set, deque))
    return plain and not of_library(type(value)) and bool(attributes_of(value))


def is_one_everywhere(value: Any) -> bool:
    """Whether several places may have one object by chance: its id tells nothing."""
    return type(value) in SIMPLE or isinstance(value, (Enum, tuple, frozenset)) or is_function(value)


def own_class(kind: type) -> type:
    """Without the class that ``fully_shard`` puts before that of each module."""
    return next((each for each in kind.__mro__ if not each.__module__.startswith("torch.distributed.")), kind)


def key_of(key: Any, place: int) -> Any:
    """How a path names an item of a dict: by its place where the key cannot be written."""
    return key if isinstance(key, (str, int)) else f"item {place}"


def of_library(kind: type) -> bool:
    """Whether a class is not the script's."""
    return _of_library(own_class(kind))


@functools.lru_cache(maxsize=4096)
def _of_library(kind: Hashable) -> bool:
    assert isinstance(kind, type)
    module = sys.modules.get(str(kind.__module__))
    if module is None or kind.__module__ in ("__main__", "__mp_main__"):
        return kind.__module__ not in ("__main__", "__mp_main__")
    return is_library(getattr(module, "__file__", None) or "<frozen")


def _is_torch(kind: type) -> bool:
    return str(kind.__module__).startswith(_TORCH)
