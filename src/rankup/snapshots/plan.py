"""Who writes what of a state, and where. A plan is made once for a layout, and again only if the layout changes.

Each rank finds its own part of the plan by itself. The mesh of a sharded tensor tells which ranks hold the same shard.
A plain tensor or value is on every rank that has its name: on all, unless they are stages of a pipeline. Ranks that
hold the same divide it by a pure function, so that all of them find the same answer.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rankup.errors import RankupError
from rankup.snapshots.layout import tensor_file
from rankup.snapshots.manifest import Chunk, SavedTensor
from rankup.snapshots.peers import Peers
from rankup.snapshots.shards import Part, offsets

SHARE = 16 << 20  # bytes: ranks that hold the same write at least so much each, or fewer ranks write

_Box = tuple[tuple[int, ...], tuple[int, ...]]  # offsets, sizes
Plain = tuple[str, Part | None]  # a plain tensor or, without a part, another value


@dataclass(frozen=True)
class Layout:
    """What a rank holds, without its content. ``replicas``: of each sharded tensor, the ranks that hold this part."""

    parts: dict[str, Part]
    replicas: dict[str, tuple[int, ...]]
    values: frozenset[str]

    def plain(self) -> list[Plain]:
        tensors: list[Plain] = [item for item in self.parts.items() if item[0] not in self.replicas]
        return [*sorted(tensors), *((name, None) for name in sorted(self.values))]


@dataclass(frozen=True)
class Plan:
    """Of one rank. ``holders``: of each of its tensors and values, the ranks that hold the same. ``chunks``: what it
    writes, in the order of its file. ``tensors``: what the manifest gets to know from it. ``values``: the plain values
    that it tells, because the leading rank does not have them."""

    layout: Layout
    holders: dict[str, tuple[int, ...]]
    chunks: dict[str, Chunk]
    tensors: dict[str, SavedTensor]
    values: list[str]

    @property
    def shared(self) -> Iterator[str]:
        """What other ranks hold as well."""
        return (name for name, ranks in self.holders.items() if len(ranks) > 1)


def make_plan(layout: Layout, peers: Peers, *, shared: bool) -> Plan:
    """The plan of this rank. A collective."""
    holders = {**layout.replicas, **_holders(layout, peers)}
    group = peers.around(shared)
    here = set(group.ranks)
    together: dict[tuple[int, ...], list[str]] = {}
    known: dict[int, list[str]] = {}  # by id: to hash a tuple takes as long as it is, and most are the same
    for name, ranks in holders.items():
        if id(ranks) not in known:
            known[id(ranks)] = together.setdefault(ranks, [])
        known[id(ranks)].append(name)
    writers: dict[str, int] = {}
    for ranks, names in together.items():
        near = [rank for rank in ranks if rank in here]
        writers |= divide({name: layout.parts[name].bytes for name in names if name in layout.parts}, near)
        writers |= {name: near[0] for name in names if name in layout.values}
    mine = [name for name in layout.parts if writers.get(name) == group.rank]
    written = [name for name in mine if layout.parts[name].bytes]
    places = offsets(layout.parts[name].bytes for name in written)
    chunks = {
        name: Chunk(tensor_file(group.rank), at, layout.parts[name].offsets, layout.parts[name].sizes)
        for name, at in zip(written, places, strict=True)
    }
    tensors = {
        name: SavedTensor(part.dtype, part.shape, (chunks[name],) if name in chunks else ())
        for name, part in ((name, layout.parts[name]) for name in mine)
        # A rank of an empty shard has nothing to tell, unless nobody else near it knows the tensor.
        if name in chunks or 0 in part.shape or not shared
    }
    values = [name for name in sorted(layout.values) if writers[name] == group.rank and not group.leads]
    return Plan(layout, holders, chunks, tensors, values)


def _holders(layout: Layout, peers: Peers) -> dict[str, tuple[int, ...]]:
    """The ranks that hold each plain tensor and value of ``layout``. Of ranks with equal lists one sends it."""
    mine = layout.plain()
    digest = hashlib.blake2b(repr(mine).encode(), digest_size=7).digest()
    alike: dict[bytes, list[int]] = {}  # ranks with equal lists
    for rank, mark in enumerate(peers.everyone.gather(digest)):
        alike.setdefault(mark, []).append(rank)
    found: dict[Plain, tuple[int, ...]] = {}  # the first rank of each of these
    for first, *_ in alike.values():
        for key in peers.everyone.broadcast(mine, first):
            found[key] = (*found.get(key, ()), first)
    ranks = {
        firsts: tuple(sorted(rank for each in alike.values() if each[0] in firsts for rank in each))
        for firsts in set(found.values())
    }
    return {key[0]: ranks[found[key]] for key in mine}


def divide(sizes: Mapping[str, int], ranks: Sequence[int]) -> dict[str, int]:
    """Which of ``ranks`` writes each of some blocks of bytes that all of them hold: the largest first, to the rank that
    has the least. The ranks that write are far apart, so that they are on different nodes."""
    if not ranks:
        return {}
    count = max(1, min(len(ranks), sum(sizes.values()) // SHARE))
    load = [(0, ranks[number * len(ranks) // count]) for number in range(count)]
    writers = {}
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        bytes_, rank = load[0]
        writers[name] = rank
        heapq.heapreplace(load, (bytes_ + sizes[name], rank))
    return writers


def united(
    told: Iterable[tuple[int, Mapping[str, SavedTensor]]], order: Iterable[str], *, whole: bool
) -> dict[str, SavedTensor]:
    """What ranks tell of tensors, as one, in the ``order`` of the leading rank's state; names that it lacks follow.
    A part that two ranks have written counts once.

    Raises RankupError if ranks disagree about a tensor, or (``whole``) do not hold all of it together.
    """
    found: dict[str, tuple[int, SavedTensor, dict[_Box, Chunk]]] = {}
    for rank, tensors in told:
        for name, saved in tensors.items():
            first, known, chunks = found.setdefault(name, (rank, saved, {}))
            if (saved.dtype, saved.shape) != (known.dtype, known.shape):
                raise RankupError(
                    "ranks-differ",
                    f"{name} is {saved.dtype}{list(saved.shape)} on rank {rank}, "
                    f"{known.dtype}{list(known.shape)} on rank {first}",
                    hint="build the same model and optimizer on all ranks",
                    exit_code=1,
                )
            for chunk in saved.chunks:
                chunks.setdefault((chunk.offsets, chunk.sizes), chunk)
    names = [name for name in dict.fromkeys([*order, *sorted(found)]) if name in found]
    tensors = {
        name: SavedTensor(saved.dtype, saved.shape, tuple(chunk for _, chunk in sorted(chunks.items())))
        for name, (_, saved, chunks) in ((name, found[name]) for name in names)
    }
    for name, saved in tensors.items() if whole else ():
        if missing := math.prod(saved.shape) - saved.held:
            raise RankupError(
                "incomplete-state",
                f"the parts of {name} on the ranks do not cover it exactly: "
                f"{missing:,} elements are missing or overlap",
                hint="every element of a tensor must be on exactly one rank (or replicated)",
                exit_code=1,
            )
    return tensors
