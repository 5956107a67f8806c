"""Tensors in parts: which part this rank holds, which rank writes it, and how a part is read with any other sharding.

A part is a box of the whole tensor: sizes, and offsets of its first element. A plain tensor is one part. The file holds
these boxes as raw bytes, row by row, in the machine's byte order.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from rankup.errors import RankupError
from rankup.snapshots.manifest import Chunk, SavedTensor

ALIGNMENT = 64  # bytes; so that a file can be mapped and viewed as any dtype


@dataclass(frozen=True)
class Part:
    """What a rank holds of a tensor, without its values. All ranks exchange these."""

    dtype: str
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


def part_of(tensor: torch.Tensor) -> Part:
    """Which part of the whole tensor this rank holds."""
    shape = tuple(tensor.shape)
    offsets, sizes = (0,) * len(shape), shape
    if is_sharded(tensor):
        (box,) = tensor.__create_chunk_list__()  # type: ignore[attr-defined]
        offsets, sizes = tuple(box.offsets), tuple(box.sizes)
    return Part(str(tensor.dtype).removeprefix("torch."), shape, offsets, sizes)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's own memory of ``tensor``."""
    piece: torch.Tensor = tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]
    return piece


def is_sharded(tensor: torch.Tensor) -> bool:
    """Whether it is a DTensor. Found by its method, since importing the class takes most of a second."""
    return hasattr(tensor, "__create_chunk_list__")


def divide(offers: Mapping[int, Mapping[str, Part]], *, whole: bool) -> dict[int, list[str]]:
    """Who writes what: rank → names, given what each rank holds. If several ranks hold the same part, the one with the
    least to write writes it. A pure function, so that every rank gets the same answer.

    Raises RankupError if ranks disagree about a tensor, or (``whole``) do not hold all of it together.
    """
    holders: dict[tuple[str, Part], list[int]] = {}
    for rank, parts in sorted(offers.items()):
        for name, part in parts.items():
            if math.prod(part.sizes):
                holders.setdefault((name, part), []).append(rank)
    _check_shapes(offers)
    if whole:
        _check_whole(holders)
    load = dict.fromkeys(offers, 0)
    mine: dict[int, list[str]] = {rank: [] for rank in offers}
    sizes = {key: math.prod(key[1].sizes) * dtype_of(key[1].dtype).itemsize for key in holders}
    for key in sorted(holders, key=lambda key: (-sizes[key], key[0], key[1].offsets)):  # the largest first
        writer = min(holders[key], key=lambda rank: (load[rank], rank))
        load[writer] += sizes[key]
        mine[writer].append(key[0])
    return mine


def _check_shapes(offers: Mapping[int, Mapping[str, Part]]) -> None:
    known: dict[str, Part] = {}
    for rank, parts in offers.items():
        for name, part in parts.items():
            other = known.setdefault(name, part)
            if (part.dtype, part.shape) != (other.dtype, other.shape):
                raise RankupError(
                    "ranks-differ",
                    f"{name} is {part.dtype}{list(part.shape)} on rank {rank}, "
                    f"{other.dtype}{list(other.shape)} on another",
                    hint="build the same model and optimizer on all ranks",
                    exit_code=1,
                )


def _check_whole(held: Iterable[tuple[str, Part]]) -> None:
    missing: dict[str, int] = {}
    for name, part in held:
        missing[name] = missing.get(name, math.prod(part.shape)) - math.prod(part.sizes)
    for name, count in missing.items():
        if count:
            raise RankupError(
                "incomplete-state",
                f"the parts of {name} on the ranks do not cover it exactly: {count:,} elements are missing or overlap",
                hint="every element of a tensor must be on exactly one rank (or replicated)",
                exit_code=1,
            )


def place(parts: Mapping[str, Part], file: str) -> tuple[dict[str, Chunk], list[int]]:
    """Where each part goes in ``file``, in the given order, and how many bytes of padding precede each."""
    chunks, paddings, at = {}, [], 0
    for name, part in parts.items():
        padding = -at % ALIGNMENT
        paddings.append(padding)
        chunks[name] = Chunk(file, at + padding, part.offsets, part.sizes)
        at += padding + math.prod(part.sizes) * dtype_of(part.dtype).itemsize
    return chunks, paddings


def read_into(tensor: torch.Tensor, saved: SavedTensor, folder: Path, name: str) -> None:
    """Fill what this rank holds of ``tensor`` from the parts that were saved, whatever their sharding.

    Raises RankupError ``scattered-snapshot`` if a part of it is on another node.
    """
    part, target, filled = part_of(tensor), local(tensor).detach(), 0
    for chunk in saved.chunks:
        low = [max(a, b) for a, b in zip(part.offsets, chunk.offsets, strict=True)]
        ends = zip(part.offsets, part.sizes, chunk.offsets, chunk.sizes, strict=True)
        high = [min(a + n, b + m) for a, n, b, m in ends]
        sizes = [max(0, h - l) for l, h in zip(low, high, strict=True)]  # noqa: E741
        if not math.prod(sizes):
            continue
        box = target
        for dim, size in enumerate(sizes):
            box = box.narrow(dim, low[dim] - part.offsets[dim], size)
        _read_box(box, chunk, [l - o for l, o in zip(low, chunk.offsets, strict=True)], folder)  # noqa: E741
        filled += math.prod(sizes)
    if filled != math.prod(part.sizes):
        raise RankupError(
            "scattered-snapshot",
            f"a part of {name} is in the snapshot directory of another node",
            context=str(folder),
            hint="resume with the same nodes and processes, or save to a directory that all nodes share",
        )


def _read_box(box: torch.Tensor, chunk: Chunk, start: list[int], folder: Path) -> None:
    """Read the box that begins at ``start`` within ``chunk``. Whole rows of the first dimension are read."""
    row = math.prod(chunk.sizes[1:]) * box.element_size()
    rows, first = (box.shape[0], start[0]) if chunk.sizes else (1, 0)
    straight = box.device.type == "cpu" and box.is_contiguous() and tuple(box.shape[1:]) == chunk.sizes[1:]
    scratch = box if straight else torch.empty((rows, *chunk.sizes[1:]), dtype=box.dtype)
    with (folder / chunk.file).open("rb", buffering=0) as file:
        file.seek(chunk.at + first * row)
        view, done = as_bytes(scratch), 0
        while done < len(view):
            got = file.readinto(view[done:])
            if not got:
                raise RankupError(
                    "snapshot-changed",
                    f"{chunk.file} was truncated after verification",
                    context=str(folder),
                    hint="no other program may write to the snapshots of a run",
                    exit_code=1,
                )
            done += got
    if not straight:
        for dim in range(1, len(chunk.sizes)):
            scratch = scratch.narrow(dim, start[dim], box.shape[dim])
        box.copy_(scratch.view(box.shape))


def as_bytes(tensor: torch.Tensor) -> memoryview:
    """The memory of a contiguous CPU tensor, of any dtype and without NumPy."""
    size = tensor.numel() * tensor.element_size()
    array = (ctypes.c_ubyte * size).from_address(tensor.data_ptr())
    array.owner = tensor  # type: ignore[attr-defined]  # which lives as long as the view does
    return memoryview(array).cast("B")


def dtype_of(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise RankupError(
            "unknown-dtype",
            f"torch {torch.__version__} does not have the dtype {name!r}, which the snapshot uses",
            hint="use the version of torch that wrote it",
        )
    return dtype
