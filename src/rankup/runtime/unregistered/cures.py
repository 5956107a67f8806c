"""What is said of values that a resume would lose: their names, and the call that cures each."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence

_NAMED = 12  # lines of a list
_ROOT = re.compile(r"\.?[^.[]*")  # ".0" is what a comprehension iterates over
_NOT_REGISTERED = (
    *("function", "type", "module", "method", "partial"),
    *("generator", "map", "filter", "zip", "cycle"),
)


def cures(
    paths: Iterable[str],
    kinds: Mapping[str, str],
    whole: Container[str],
    is_simple: Callable[[str], bool],
    unset: Mapping[str, str],
    named: Container[str] = (),
) -> list[str]:
    """A call for each variable of the script that holds one of the paths. ``kinds``: variable → the class of what it
    holds, unless that is a plain value. ``whole``: names of what was prepared or registered. ``is_simple``: whether a
    path is a number or the like. ``unset``: variables that hold what ``run.register`` refuses → what to keep of it.
    ``named``: paths of functions, and of objects of another class."""
    found: dict[str, str] = {}
    for path in paths:
        name = root_of(path)
        kind = kinds.get(name, "")
        last = name.rpartition(".")[2]
        short = kind.lower() if last == "self" else last
        if path in whole:
            found.setdefault(
                path,
                f"{path} is registered or prepared: change that object in place, and keep the name on it",
            )
        elif path in named:
            found.setdefault(
                path,
                f"{path}: values = run.register(phase=0), choose it by values.phase at the begin of each epoch, and "
                f"then run.forget({path!r})",
            )
        elif name in unset:
            found.setdefault(
                name,
                f"{last} itself cannot be registered: values = run.register({short}={unset[name].format(last)}), "
                f"set values.{short} whenever {last} moves on, and begin {last} by it",
            )
        elif kind in _NOT_REGISTERED:
            found.setdefault(name, f"{path}: keep it in an object or a dict, and run.register that")
        elif not kind and name == path and is_simple(path):
            found.setdefault(
                name, f"values = run.register({short}={last}), and values.{short} in place of {last}"
            )
        else:
            found.setdefault(name, f"run.register({short}={last})")
    calls = list(found.values())
    return [*calls[:_NAMED], *([f"and {len(calls) - _NAMED} more"] if len(calls) > _NAMED else [])]


def root_of(path: str) -> str:
    """The variable that holds a path."""
    return path if path.isidentifier() else _ROOT.match(path)[0]  # type: ignore[index]


def differing(everyone: Sequence[Mapping[str, str]]) -> str:
    """What to say of values that differ between ranks under any-world, where a rank counts its own virtual shards."""
    first = everyone[0]
    names = sorted({name for mine in everyone for name, digest in mine.items() if first.get(name) != digest})
    return (
        f"{listed(names)} differ between ranks, and so depend on their number: any-world keeps the same only what all "
        "ranks compute alike"
        if names
        else ""
    )


def compared(lost: Sequence[tuple[str, str, str]]) -> str:
    """Paths with the values of then and of now."""
    values = "; ".join(
        f"{path}: {was} with other values" if was == now else f"{path}: {was} when saved, {now} now"
        for path, was, now in lost[:_NAMED]
    )
    return values + (f"; and {len(lost) - _NAMED} more" if len(lost) > _NAMED else "")


def listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
