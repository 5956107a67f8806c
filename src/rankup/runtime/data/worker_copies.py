"""Whether a data set changes while loader workers have a copy of it.

Workers get their copy when they begin: in each epoch, or once if they persist. What the script changes later does not
reach them, but a resume begins new workers with the values of then, and so trains on other samples. In shared memory it
reaches them after a number of batches that depends on time. So a change is an error, found no later than at the save
that a resume would begin from.

Only what the code that makes samples reads is compared, by its name: a ``collate_fn`` may be a method of a trainer.
What was None, or not there, and entries that join a dict are taken for what a data set opens or keeps as it is read:
they count from their next change on.
"""

from __future__ import annotations

import dis
import re
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from rankup.runtime.call_site import is_library
from rankup.runtime.data.generators import held_generators, variables_read
from rankup.runtime.unregistered.marks import Mark, differ
from rankup.runtime.unregistered.walk import Walk

_MAKES_SAMPLES = ("__getitem__", "__getitems__", "__iter__", "__next__", "__call__", "forward")
_DICT = re.compile(r"(?:dict|OrderedDict|defaultdict|Counter) of (\d+)")


class _Seen(NamedTuple):
    mark: Mark
    tensor: Any  # the value, if it is a tensor, and how often it was written to: of a large one a mark sees a part
    writes: int


class WorkerCopies:
    """Made when workers begin."""

    def __init__(self, dataset: Any, collate: Any) -> None:
        self._parts = {type(dataset).__name__: dataset, "collate_fn": collate}
        self._seen = self._look()

    def changed(self, forgotten: Iterable[str]) -> list[tuple[str, str, str]]:
        """The paths of what has changed, with the values of then and of now; not of names in ``forgotten``."""
        apart = {name.rpartition(".")[2] for name in forgotten}
        found = []
        for path, now in self._look().items():
            was = self._seen.setdefault(path, now)
            if not _differs(was, now) or apart.intersection(re.split(r"\W+", path)):
                continue
            if _is_filled(was.mark, now.mark):
                self._seen[path] = now
            else:
                found.append((path, was.mark.text, now.mark.text))
        return found

    def _look(self) -> dict[str, _Seen]:
        # Generators are seeded per sample, wherever they are.
        walk = Walk({id(each) for each in held_generators(tuple(self._parts.values()))}).look(self._parts)
        variables, names, values = _read_by_code(walk.objects)
        marks = {**walk.look(variables).inherited, **walk.by_path()}
        roots = sorted({**self._parts, **variables}, key=len, reverse=True)
        found = {}
        for path, mark in marks.items():
            root = next((root for root in roots if path.startswith(root)), "")
            thing = walk.things.get(path)
            *through, last = re.findall(r"\.(\w+)", path[len(root) :]) or [None]
            # What is called may be a transform or a module, and no number that has the name of a list's method.
            read = last is None or last in (names if mark.named or callable(thing) else values)
            if read and names.issuperset(through) and not _is_trained(thing):
                found[path] = _Seen(mark, *_writes(thing))
        return found


def _read_by_code(objects: Mapping[str, Any]) -> tuple[dict[str, Any], set[str], set[str]]:
    """Of the code that makes samples from ``objects``: the variables outside of them that it reads, and registered
    values; the names in it, and those of them that are read and not only called."""
    from rankup.runtime.checkpointing.registered import Values

    kinds = {kind for each in objects.values() for kind in type(each).__mro__}
    methods = {id(method) for kind in kinds for method in vars(kind).values()}
    code = [each for each in objects.values() if id(each) not in methods]
    spaces = {path: each for path, each in objects.items() if isinstance(each, Values)}
    found: dict[str, Any] = {}
    values = {"__self__", "func", "args", "keywords"}
    names = {*_MAKES_SAMPLES, *values}
    read: set[Any] = set()
    while new := {_function(each) for each in [*code, *_named(kinds, names)]} - {None, *read}:
        read |= new
        for function in new:
            values |= {*_values_in(function.__code__)}
            names |= {*_names_in(function.__code__), *values}
            if is_library(function.__code__.co_filename):
                continue
            for name, value in variables_read(function).items():
                code.append(value)
                kinds |= {*type(value).__mro__}
                if isinstance(value, Values):
                    spaces[name] = value
                elif not isinstance(value, (FunctionType, ModuleType, type)):
                    found[name] = value
    registered = ((path, name, value) for path, each in spaces.items() for name, value in each)
    return (
        found | {f"{path}.{name}": value for path, name, value in registered if name in values},
        names,
        values,
    )


def _named(kinds: set[type], names: set[str]) -> Iterator[Any]:
    for kind in kinds:
        yield from (vars(kind)[name] for name in names & vars(kind).keys())


def _function(thing: Any) -> Any:
    """The function of a method or a property; None of anything that is not Python code."""
    function = getattr(thing, "fget" if isinstance(thing, property) else "__func__", thing)
    return function if isinstance(function, FunctionType) else None


def _names_in(code: CodeType) -> Iterator[str]:
    """Names of globals, attributes and methods."""
    for each in _codes_in(code):
        yield from each.co_names


def _values_in(code: CodeType) -> Iterator[str]:
    """Names of attributes that are read, of closure variables and of arguments. A method call (``xs.mean()``) and a
    global (``max``) do not read an attribute of that name."""
    for each in _codes_in(code):
        yield from (*each.co_freevars, *each.co_varnames[: each.co_argcount + each.co_kwonlyargcount])
        yield from (
            str(one.argval)
            for one in dis.get_instructions(each)
            # From Python 3.12 on a method is loaded by the same instruction, and its text says so.
            if one.opname == "LOAD_ATTR" and "NULL|self" not in one.argrepr
        )


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes_in(inner)


def _is_trained(thing: Any) -> bool:
    """Such a thing is there for its settings, mostly."""
    if isinstance(thing, nn.Module):
        return any(parameter.requires_grad for parameter in thing.parameters())
    return isinstance(thing, (Optimizer, LRScheduler))


def _writes(thing: Any) -> tuple[Any, int]:
    if not isinstance(thing, torch.Tensor) or thing.is_inference():
        return None, 0
    return thing, thing._version


def _differs(was: _Seen, now: _Seen) -> bool:
    written = was.tensor is not None and was.tensor is now.tensor and was.writes != now.writes
    return written or differ(was.mark, now.mark)


def _is_filled(was: Mark, now: Mark) -> bool:
    before, after = _DICT.fullmatch(was.text), _DICT.fullmatch(now.text)
    grown = before is not None and after is not None and int(before[1]) < int(after[1])
    return grown or was.content == [None]
