"""Why ranks are at different places: the plain values of the script that differ between them.

Where one rank evaluates and another trains on, a condition has had two answers. Each rank reads the variables of its
main thread, while that waits: no code of the script runs, and no tensor is looked at, since a device may hang.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import FrameType
from typing import Any

from rankup.runtime.call_site import script_frames
from rankup.runtime.unregistered.marks import mark_of
from rankup.runtime.unregistered.walk import attributes_of, is_watched, variables_of

#: Function and value, as the script writes it → its text.
Values = dict[str, str]
_MOST_VALUES = 500
_NAMED = 6
_PLAIN = (bool, int, float, str)


def plain_values(frame: FrameType | None, registered: Iterable[tuple[str, Any]]) -> Values:
    """Numbers and texts: what ``run.register`` got, and the variables of the script's functions from ``frame``
    outwards, with their attributes and items."""
    found: Values = {}
    for path, value in _all(frame, registered):
        if len(found) == _MOST_VALUES:
            break
        if isinstance(value, _PLAIN) and (mark := mark_of(value)) is not None:
            found.setdefault(path, mark.text)
    return found


def _all(frame: FrameType | None, registered: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    for name, value in registered:
        yield f"registered {name}", value
    for each in script_frames(frame) if frame is not None else ():
        place = each.f_code.co_name
        for name, value in list(variables_of(each).items()):
            if name.startswith("_"):
                continue
            yield f"{place} {name}", value
            if isinstance(value, dict):
                yield from ((f"{place} {name}[{key!r}]", item) for key, item in list(value.items()))
            elif is_watched(type(value)):
                yield from ((f"{place} {name}.{key}", item) for key, item in attributes_of(value))


def differing(everyone: Mapping[int, Values]) -> str:
    """What to say of the values that differ between these ranks: ``best is 0.4 on rank 0, 0.5 on rank 1``; "" for
    none. A value that is the number of each rank is left out."""
    first = next(iter(everyone.values()), {})
    said = []
    for path in first:
        texts = {rank: values[path] for rank, values in everyone.items() if path in values}
        own = all(text.strip("'") == str(rank) for rank, text in texts.items())
        if len(texts) == len(everyone) and len(set(texts.values())) > 1 and not own:
            told = ", ".join(f"{text} on rank {rank}" for rank, text in sorted(texts.items()))
            said.append(f"{path.partition(' ')[2]} is {told}")
    more = [f"{len(said) - _NAMED} more"] if said[_NAMED:] else []
    return "; ".join(said[:_NAMED] + more)
