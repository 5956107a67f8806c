"""What a program says itself: its world size, the device of each rank, and the variables that it has its rank by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rankup.check.document import Document
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.reader import read_program
from rankup.check.facts.program.required import required_variables
from rankup.check.facts.program.value import (
    KIND_OF_VARIABLE,
    NOTHING,
    Atom,
    Kind,
    Value,
    constant,
    is_only,
    the_constant,
    union,
)
from rankup.check.rules.queries import device_choices


@dataclass(frozen=True)
class WrittenDown:
    """``world_size`` of ``init_process_group``; ``device``: a number for all ranks, or ``rank``: the global rank.

    ``rank_by`` and ``size_by``: the one variable that ``init_process_group`` gets each from, if it gets them.
    ``needs_rank``: it ends with an error where RANK is not set.
    """

    world_size: int | None = None
    device: int | str | None = None
    rank_by: str = ""
    size_by: str = ""
    needs_rank: bool = False

    def index(self, rank: int | None, local_rank: int | None) -> int | None:
        """The number of the GPU that a rank takes, among those that it sees."""
        if self.device is None:
            return local_rank
        return rank if self.device == "rank" else int(self.device)


@cache
def written_down(path: str) -> WrittenDown:
    """Of the program in ``path``, with the modules beside it; nothing for one that cannot be read."""
    document = _read(path)
    if document is None:
        return WrittenDown()
    program = read_program(document, None, lambda name: _read(str(Path(path).parent / name)))
    if program.syntax_error or program.spawns or program.started:
        return WrittenDown()
    sizes = {the_constant(program.value(call, "world_size", 3)) for call in program.inits}
    size = sizes.pop() if len(sizes) == 1 else None
    named = (program.values.of(one.number, one.scope) for one in device_choices(program))
    devices = _indexes(_devices(program)) or _indexes(named)
    return WrittenDown(
        size if isinstance(size, int) and size > 0 else None,
        devices.pop() if len(devices) == 1 else None,
        _variable([program.value(call, "rank", 4) for call in program.inits], Kind.RANK),
        _variable([program.value(call, "world_size", 3) for call in program.inits], Kind.WORLD_SIZE),
        "RANK" in required_variables(program),
    )


def _variable(values: list[Value], kind: Kind) -> str:
    """The variable that all of ``values`` are read from; "" if there is not just one."""
    read = {
        atom.detail if is_only(value, kind) else "" for value in values for atom in value if not atom.fallback
    }
    name = read.pop() if len(read) == 1 and all(values) else ""
    return name if name in KIND_OF_VARIABLE else ""


def _read(path: str) -> Document | None:
    try:
        return Document(path, Path(path).read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None


def _devices(program: Program) -> Iterator[Value]:
    for call in program.device_calls:
        yield program.value(call, "device", 0)
    for call in program.named("DistributedDataParallel"):
        for atom in program.value(call, "device_ids", 1):
            if atom.kind is Kind.SEQUENCE and len(atom.detail) == 1:
                yield atom.detail[0]


def _indexes(devices: Iterable[Value]) -> set[int | str | None]:
    return {_index(numbers) for value in devices if (numbers := union(map(_numbers, value)))}


def _numbers(atom: Atom) -> Value:
    """What a device's number can be. The CPU, which a program takes without a GPU, and ``"cuda"`` have none."""
    if atom.kind is Kind.DEVICE:
        numbers: Value = atom.detail[1]
        return numbers
    known = the_constant(frozenset({atom}))
    if isinstance(known, str):
        known = known.rpartition(":")[2]
        return constant(int(known)) if known.isdigit() else NOTHING
    return NOTHING if atom.kind is Kind.CONSTANT and known is None else frozenset({atom})


def _index(numbers: Value) -> int | str | None:
    """Of a device: its number, ``rank`` if it is the global rank as it is, or None."""
    known = the_constant(numbers)
    if isinstance(known, int):
        return known
    own = is_only(numbers, Kind.RANK) and all(atom.detail != "modulo" for atom in numbers)
    return "rank" if own else None
