"""What a value can be: where it comes from, as far as the text tells."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rankup.check.facts.program import names
from rankup.check.facts.program.module import Call, Scope


class Kind(Enum):
    RANK = "global rank"
    LOCAL_RANK = "local rank"
    NODE_RANK = "node rank"
    WORLD_SIZE = "world size"
    LOCAL_SIZE = "ranks or devices per node"
    DEVICE_LIST = "list of visible devices"
    CONSTANT = "constant"
    OPTION = "command-line option"
    ENVIRONMENT = "os.environ"
    DEVICE = "device"
    OBJECT = "result of a call"
    FUNCTION = "function"
    SEQUENCE = "tuple or list"
    ITEM = "item of something"
    TEST = "condition on the rank"
    COMPUTED = "computed from others"
    UNKNOWN = "unknown"


RANKS = (Kind.RANK, Kind.LOCAL_RANK, Kind.NODE_RANK)
#: What a call or an attribute of a package says of a process.
KIND_OF_NAME = {
    name: kind
    for kind, table in (
        (Kind.RANK, names.RANK_NAMES),
        (Kind.LOCAL_RANK, names.LOCAL_RANK_NAMES),
        (Kind.WORLD_SIZE, names.WORLD_SIZE_NAMES),
        (Kind.LOCAL_SIZE, names.LOCAL_SIZE_NAMES),
    )
    for name in table
}
#: The same of a variable of the environment.
KIND_OF_VARIABLE = {
    name: kind
    for kind, table in (
        (Kind.RANK, names.RANK_VARIABLES),
        (Kind.LOCAL_RANK, names.LOCAL_RANK_VARIABLES),
        (Kind.WORLD_SIZE, names.WORLD_SIZE_VARIABLES),
        (Kind.LOCAL_SIZE, names.LOCAL_SIZE_VARIABLES),
        (Kind.NODE_RANK, names.NODE_RANK_VARIABLES),
        (Kind.DEVICE_LIST, names.DEVICE_LIST_VARIABLES),
    )
    for name in table
}


@dataclass(frozen=True)
class Test:
    """A condition that depends on the rank: on which ranks it is true.

    ``only`` and ``not_only`` can both be true (``rank == 0``), one of them (``rank == 0 and ready``: only rank 0, but
    not always), or none.
    """

    of: Kind  # RANK, LOCAL_RANK or NODE_RANK
    first: bool  # true on the first rank; else on the others
    sure: bool  # False: the name says so
    partly: bool = False  # with another condition: ``rank == 0 and ready``
    either: bool = False  # or another condition: ``not distributed or rank == 0``
    number: int = 0  # rank == number

    def negated(self) -> Test:
        return Test(self.of, not self.first, self.sure, self.either, self.partly, self.number)


@dataclass(frozen=True)
class Atom:
    """One thing that a value can be."""

    kind: Kind
    detail: Any = None  # of a constant its value, of an object the Call that made it, …
    fallback: bool = False  # a default: os.environ.get("RANK", 0)

    @property
    def call(self) -> Call | None:
        return self.detail if isinstance(self.detail, Call) else None

    @property
    def scope(self) -> Scope | None:
        return self.detail if isinstance(self.detail, Scope) else None


Value = frozenset[Atom]
NOTHING: Value = frozenset()
UNKNOWN: Value = frozenset({Atom(Kind.UNKNOWN)})


def constant(value: object) -> Value:
    return frozenset({Atom(Kind.CONSTANT, _Constant(value))})


@dataclass(frozen=True)
class _Constant:
    """Wraps a constant so that 1, 1.0 and True stay apart."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Constant) and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash(repr(self.value))


def union(values: Iterable[Value]) -> Value:
    return frozenset().union(*values)


def kinds(value: Value) -> set[Kind]:
    return {atom.kind for atom in value}


def constants(value: Value) -> list[Any]:
    return [atom.detail.value for atom in value if atom.kind is Kind.CONSTANT]


def the_constant(value: Value) -> Any:
    """The constant that a value always is; None if it can be anything else."""
    found = constants(value)
    return found[0] if len(value) == 1 and found else None


def is_only(value: Value, *allowed: Kind) -> bool:
    """Whether a value is one of these kinds, whatever its defaults may be."""
    own = {atom.kind for atom in value if atom.kind is not Kind.CONSTANT}
    return bool(own) and own <= set(allowed)


def depends_on(value: Value, *wanted: Kind) -> bool:
    """Whether one of these kinds goes into a value, in any way."""
    for atom in value:
        if atom.kind in wanted:
            return True
        if atom.kind is Kind.COMPUTED and atom.detail & set(wanted):
            return True
        if atom.kind is Kind.TEST and atom.detail.of in wanted:
            return True
        if atom.kind in {Kind.DEVICE, Kind.ITEM} and any(
            depends_on(part, *wanted) for part in atom.detail if isinstance(part, frozenset)
        ):
            return True
        if atom.kind is Kind.SEQUENCE and any(depends_on(part, *wanted) for part in atom.detail):
            return True
    return False


def flat_kinds(value: Value) -> frozenset[Kind]:
    """All kinds that go into a value."""
    found: set[Kind] = set()
    for atom in value:
        if atom.kind is Kind.COMPUTED:
            found |= atom.detail
        elif atom.kind is Kind.SEQUENCE:
            for part in atom.detail:
                found |= flat_kinds(part)
        elif atom.kind in {Kind.DEVICE, Kind.ITEM}:
            for part in atom.detail:
                if isinstance(part, frozenset):
                    found |= flat_kinds(part)
        elif atom.kind is Kind.TEST:
            found.add(atom.detail.of)
        else:
            found.add(atom.kind)
    return frozenset(found)


def computed(*values: Value) -> Value:
    return frozenset({Atom(Kind.COMPUTED, frozenset().union(*(flat_kinds(value) for value in values)))})


def objects(value: Value) -> list[Call]:
    """The calls whose results a value can be."""
    return [atom.detail for atom in value if atom.kind is Kind.OBJECT and isinstance(atom.detail, Call)]


def tests(value: Value) -> list[Test]:
    return [atom.detail for atom in value if atom.kind is Kind.TEST]


def part_of(value: Value, path: tuple[int, ...]) -> Value:
    """What stands at a place of a tuple: ``a, (b, c) = value``."""
    for index in path:
        parts: list[Value] = []
        for atom in value:
            if atom.kind is Kind.SEQUENCE and -len(atom.detail) <= index < len(atom.detail):
                parts.append(atom.detail[index])
            elif atom.kind is Kind.CONSTANT and atom.detail.value is None:
                continue  # a function that returns nothing on one of its ways
            elif atom.kind is Kind.OBJECT:
                parts.append(frozenset({Atom(Kind.ITEM, (frozenset({atom}), index))}))
            else:
                parts.append(UNKNOWN)
        value = union(parts)
    return value
