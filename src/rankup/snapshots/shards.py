"""Tensors in parts: which part this rank holds, which ranks hold the same, and how it is read with any other sharding.

A part is a box of the whole tensor: sizes, and offsets of its first element. A plain tensor is one part. The file holds
these boxes as raw bytes, row by row, in the machine's byte order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from rankup.errors import RankupError
from rankup.snapshots.manifest import Chunk, SavedTensor
from rankup.snapshots.tensor_checksum import as_bytes

ALIGNMENT = 64  # bytes; so that a file can be mapped and viewed as any dtype


@dataclass(frozen=True)
class Part:
    """What a rank holds of a tensor, without its values."""

    dtype: str
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return math.prod(self.sizes) * dtype_of(self.dtype).itemsize


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


def replicas(tensor: torch.Tensor) -> tuple[int, ...]:
    """The ranks that hold the same part of a sharded tensor, by its mesh: no rank has to ask another one."""
    return _replicas(tensor.device_mesh, tuple(tensor.placements))  # type: ignore[attr-defined]


@cache
def _replicas(mesh: Any, placements: tuple[Any, ...]) -> tuple[int, ...]:
    if (here := mesh.get_coordinate()) is None:  # this rank holds nothing of it
        return ()
    index = (slice(None) if each.is_replicate() else at for each, at in zip(placements, here, strict=True))
    return tuple(sorted(mesh.mesh[tuple(index)].reshape(-1).tolist()))


def is_sharded(tensor: torch.Tensor) -> bool:
    """Whether it is a DTensor. Found by its method, since importing the class takes most of a second."""
    return hasattr(tensor, "__create_chunk_list__")


def offsets(sizes: Iterable[int]) -> Iterator[int]:
    """Where each of some blocks of bytes begins in a file of ``padded`` ones."""
    at = 0
    for size in sizes:
        yield at
        at += size + -size % ALIGNMENT


def padded(blocks: Iterable[bytes | memoryview]) -> list[bytes | memoryview]:
    return [piece for block in blocks for piece in (block, bytes(-len(block) % ALIGNMENT))]


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


def dtype_of(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise RankupError(
            "unknown-dtype",
            f"torch {torch.__version__} does not have the dtype {name!r}, which the snapshot uses",
            hint="use the version of torch that wrote it",
        )
    return dtype
