"""Objects of the script, read without running its code: attributes, functions that a loop calls."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import CO_GENERATOR
from types import (
    FrameType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

from torch import nn

from rankup.runtime.checkpointing.carried.flow import Called
from rankup.runtime.checkpointing.carried.syntax import SUPER, functions
from rankup.runtime.tracing.script_variables import is_library

NOTHING = object()
_SIMPLE = (bool, int, float, str, type(None))


def held(value: Any, name: str) -> Any:
    """An attribute, also one in ``__slots__`` or a class's own value; ``"[key]"`` of a dict; of a function, an
    attribute or a variable that it uses of its surroundings; ``"(name)"`` of a function and of a ``partial``, what it
    has for a parameter; of a method its ``__self__``. ``NOTHING`` for a property."""
    if name.startswith("["):
        return dict.get(value, name[1:-1], NOTHING) if isinstance(value, dict) else NOTHING
    if name.startswith("("):
        return _parameters(value).get(name[1:-1], NOTHING)
    if isinstance(value, MethodType):
        return {"__self__": value.__self__, "__func__": value.__func__}.get(name, NOTHING)
    if isinstance(value, partial):
        return value.func if name == "func" else NOTHING
    if isinstance(value, FunctionType):
        return vars(value)[name] if name in vars(value) else _surroundings(value).get(name, NOTHING)
    own = _own(value)
    if name in own:
        return own[name]
    for kind in (value if isinstance(value, type) else type(value)).__mro__:
        if name in (found := vars(kind)):
            thing = found[name]
            if isinstance(thing, MemberDescriptorType) and not isinstance(value, type):
                try:
                    return thing.__get__(value)
                except AttributeError:  # not set yet
                    return NOTHING
            of_class = isinstance(thing, (FunctionType, staticmethod, classmethod))
            return thing if of_class or not hasattr(type(thing), "__get__") else NOTHING
    return NOTHING


def _parameters(value: Any) -> dict[str, Any]:
    """What a function or a ``partial`` has for parameters that a call leaves out."""
    if isinstance(value, partial):
        first = _positional(value.func)[: len(value.args)]
        return {**dict(zip(first, value.args, strict=False)), **value.keywords}
    if not isinstance(value, FunctionType):
        return {}
    defaults = value.__defaults__ or ()
    last = _positional(value)[-len(defaults) :] if defaults else []
    return {**dict(zip(last, defaults, strict=True)), **(value.__kwdefaults__ or {})}


def _positional(function: Any) -> list[str]:
    """The names of its positional parameters, without those that a method has already."""
    if isinstance(function, MethodType):
        return _positional(function.__func__)[1:]
    if not isinstance(function, FunctionType):
        return []
    return [*function.__code__.co_varnames[: function.__code__.co_argcount]]


def home(holder: Any, name: str) -> int:
    """The same for an attribute of a module and a global variable of one of its functions."""
    if isinstance(holder, ModuleType):
        return id(vars(holder))
    of_globals = isinstance(holder, FunctionType) and name[0] != "("
    if of_globals and name not in (*vars(holder), *holder.__code__.co_freevars):
        return id(holder.__globals__)
    return id(holder)


def file_of(value: Any) -> str:
    """The source of a class or a module, or of the class of an object."""
    if isinstance(value, ModuleType):
        return str(getattr(value, "__file__", None) or "")
    if isinstance(value, FunctionType):
        return value.__code__.co_filename
    kind = value if isinstance(value, type) else type(value)
    return str(getattr(sys.modules.get(kind.__module__), "__file__", None) or "")


def line_of(kind: type) -> int:
    """A line of its source: that of its first method. 0 without one."""
    methods = (each for each in vars(kind).values() if isinstance(each, FunctionType))
    return next((each.__code__.co_firstlineno for each in methods), 0)


def has_state(value: Any) -> bool:
    """Whether the warning about objects that are not registered names it. Not for modules: their ``state_dict`` lacks
    plain attributes."""
    return not isinstance(value, nn.Module) and hasattr(type(value), "state_dict")


def of_library(value: Any) -> bool:
    """Whether its class is a library's, or a strategy's, or has no source file. False for dicts and for plain holders
    of attributes (``SimpleNamespace``, argparse's ``Namespace``)."""
    if isinstance(value, dict) or type(value).__name__ in ("SimpleNamespace", "Namespace"):
        return False
    if isinstance(value, ModuleType) and value.__spec__ is None and not hasattr(value, "__file__"):
        return False  # made by hand
    if isinstance(value, partial):
        return of_library(value.func)
    if isinstance(value, MethodType):
        return of_library(value.__func__)
    if type(value).__module__.startswith("rankup.strategies."):  # a stage of a pipeline
        return True
    return not (path := file_of(value)) or is_library(path)


class Space:
    """What names mean in a frame, or in a function."""

    def __init__(self, variables: Mapping[str, Any], at: FrameType | FunctionType) -> None:
        self._variables = variables
        self._at = at

    def called(self, name: str) -> Called | None:
        """The function of the script that ``name(…)`` calls."""
        try:
            return self._called(name) if name else None
        except Exception:  # an object of the script of a strange kind
            return None

    def _called(self, name: str) -> Called | None:
        first, *rest = name.split(".")
        value, holder = self._variables.get(first, NOTHING), NOTHING
        if first == SUPER and len(rest) == 1:
            value = _of_parents(self._variables["__class__"], rest[0])
        else:
            for attribute in rest:
                value, holder = held(value, attribute), value
        value, inside, taken, held_by = _without_arguments(value)
        bound = None
        if not inside:
            value, bound = _bound(value, holder, first, rest)
        around = self._described(value, holder, bound, taken, held_by, inside)
        while isinstance(value, FunctionType) and "__wrapped__" in vars(value):  # of a decorator
            value, inside = vars(value)["__wrapped__"], f"{inside}__wrapped__."
            found = self._described(value, holder, bound, taken, held_by, inside)
            around = replace(found, around=around) if found is not None else around
        return around

    def _described(
        self, value: Any, holder: Any, bound: int | None, taken: int, held_by: Mapping[str, str], inside: str
    ) -> Called | None:
        """``inside``: the parts behind its dotted name by which ``held`` finds it. ``held_by``: of parameters."""
        if not isinstance(value, FunctionType) or is_library(value.__code__.co_filename):
            return None
        if value.__code__.co_flags & CO_GENERATOR:  # which runs later
            return None
        source = "".join(linecache.getlines(value.__code__.co_filename, value.__globals__))
        node = functions(source).get(value.__code__.co_firstlineno)
        if node is None or node.name != value.__code__.co_name:
            return None
        defaults = {
            name: f"{inside}({name})"
            for name, default in _parameters(value).items()
            if not isinstance(default, (*_SIMPLE, tuple, type, FunctionType))
        }
        space = Space(_surroundings(value), value)
        return Called(
            node,
            source,
            bound,
            space.called,
            lambda root: self._outside(value, holder, root, inside),
            held={**defaults, **held_by},
            taken=taken,
        )

    def _outside(self, function: FunctionType, holder: Any, root: str, inside: str) -> str:
        """The name, here, of a variable that ``function`` uses and that is not its own."""
        if root in function.__code__.co_freevars:
            code = self._at.f_code if isinstance(self._at, FrameType) else self._at.__code__
            shared = root in code.co_cellvars or root in code.co_freevars
            return root if shared else f".{inside}{root}"
        if root not in function.__globals__:
            return ""
        mine = self._at.f_globals if isinstance(self._at, FrameType) else self._at.__globals__
        if function.__globals__ is mine:
            return root
        return f"..{root}" if _own(holder) is function.__globals__ else f".{inside}{root}"


def _without_arguments(value: Any) -> tuple[Any, str, int, dict[str, str]]:
    """The function in a ``partial`` or a bound method; the parts by which ``held`` finds it in there; how many
    positional arguments it has already; and the parts of the arguments, by parameter."""
    inside, taken = "", 0
    arguments: dict[str, str] = {}
    while isinstance(value, (partial, MethodType)):
        if isinstance(value, partial):
            arguments |= {each: f"{inside}({each})" for each in _parameters(value)}
            taken += len(value.args)
            value, inside = value.func, f"{inside}func."
        else:
            if me := _positional(value.__func__)[:1]:
                arguments[me[0]] = f"{inside}__self__"
                taken += 1
            value, inside = value.__func__, f"{inside}__func__."
    return value, inside, taken, arguments


def _bound(value: Any, holder: Any, first: str, rest: Sequence[str]) -> tuple[Any, int | None]:
    """The function that a call of ``first.rest`` runs, and ``Called.bound``; ``holder`` has it as an attribute."""
    if isinstance(value, (staticmethod, classmethod)):
        return value.__func__, len(rest) if isinstance(value, classmethod) and rest else None
    if isinstance(value, FunctionType):
        of_class = first == SUPER or (
            not isinstance(holder, (type, ModuleType, FunctionType)) and holder is not NOTHING
        )
        return value, len(rest) if of_class and rest and rest[-1] not in _own(holder) else None
    if isinstance(value, type):
        return value, None
    return held(type(value), "__call__"), len(rest) + 1


def _of_parents(kind: type, name: str) -> Any:
    return next((vars(each)[name] for each in kind.__mro__[1:] if name in vars(each)), NOTHING)


def _own(value: Any) -> Mapping[str, Any]:
    found = getattr(value, "__dict__", None)
    return found if isinstance(found, Mapping) else {}


def _surroundings(function: FunctionType) -> dict[str, Any]:
    found = dict(function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not set yet
            continue
    return found
