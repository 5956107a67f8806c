"""The IDX format, MNIST's: two zero bytes, a code for the type, the number of dimensions, each dimension as a
big-endian unsigned 32-bit integer, then the values, big-endian, the last dimension fastest. Plain or gzipped.
"""

from __future__ import annotations

import gzip
import io
import math
import struct
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from rankup.core.files import write_atomic
from rankup.errors import RankupError

if TYPE_CHECKING:
    import torch

# code → (name of the torch dtype, bytes per value)
_TYPES = {
    0x08: ("uint8", 1),
    0x09: ("int8", 1),
    0x0B: ("int16", 2),
    0x0C: ("int32", 4),
    0x0D: ("float32", 4),
    0x0E: ("float64", 8),
}
_MAX_DIMENSIONS = 64  # torch's
_MAX_BYTES = 1 << 62
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Header:
    """The header of an IDX file: the name of a torch dtype, its bytes per value, the shape.

    ``size`` is the size of the header itself, in bytes.
    """

    dtype: str
    itemsize: int
    shape: tuple[int, ...]
    size: int

    @property
    def payload(self) -> int:
        """The number of bytes after the header."""
        return math.prod(self.shape) * self.itemsize


def parse_header(raw: bytes, name: str = "the data") -> Header:
    """The header at the start of ``raw``. A ``RankupError`` calls the file ``name``."""
    if len(raw) < 4:
        raise _bad(name, f"expected a header of at least 4 bytes, found {len(raw)}")
    zeros, code, dimensions = struct.unpack(">HBB", raw[:4])
    if zeros != 0:
        raise _bad(name, f"expected 00 00 at the start, found {raw[:2].hex(' ')}")
    if code not in _TYPES:
        known = ", ".join(f"{c:#04x} {dtype}" for c, (dtype, _) in _TYPES.items())
        raise _bad(name, f"expected one of IDX's types ({known}), found {code:#04x}")
    if dimensions > _MAX_DIMENSIONS:
        raise _bad(name, f"expected at most {_MAX_DIMENSIONS} dimensions, found {dimensions}")
    size = 4 + 4 * dimensions
    if len(raw) < size:
        raise _bad(name, f"expected a header of {size} bytes, found {len(raw)}")
    shape = struct.unpack(f">{dimensions}I", raw[4:size])
    dtype, itemsize = _TYPES[code]
    if math.prod(max(d, 1) for d in shape) * itemsize > _MAX_BYTES:
        raise _bad(name, f"its header has the impossible shape {_show(shape)}")
    return Header(dtype, itemsize, shape, size)


def read_idx(path: Path) -> torch.Tensor:
    """The tensor in ``path``, with the header's shape and dtype. The file may be gzipped, with any name."""
    import torch

    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            header, payload = _read(gzip.GzipFile(fileobj=file) if packed else file, str(path))
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _bad(str(path), f"its gzip compression is damaged ({error})") from error
    except OSError as error:
        raise RankupError(
            "unreadable-data",
            f"cannot read {str(path)!r}: {error.strerror}",
            hint="check the path and its permissions",
        ) from error
    if not payload:
        return torch.empty(header.shape, dtype=getattr(torch, header.dtype))
    raw = _swap(torch.frombuffer(payload, dtype=torch.uint8), header.itemsize)
    return raw.view(getattr(torch, header.dtype)).reshape(header.shape)


def _read(file: BinaryIO | gzip.GzipFile, name: str) -> tuple[Header, bytearray]:
    start = file.read(4)
    start += file.read(4 * start[3]) if len(start) == 4 else b""
    header = parse_header(start, name)
    payload = bytearray()
    # Read in chunks, because a wrong header may declare more bytes than there is memory. Read one byte past
    # the end, to find files that are too long and to let gzip compare its own checksum.
    while chunk := file.read(min(_CHUNK, header.payload + 1 - len(payload))):
        payload += chunk
    if len(payload) != header.payload:
        short = len(payload) < header.payload
        what, found = ("truncated", str(len(payload))) if short else ("too long", "more")
        raise _bad(
            name,
            f"it is {what}: {header.dtype} of shape {_show(header.shape)} needs {header.payload} bytes "
            f"after the header, found {found}",
        )
    return header, payload


def write_idx(path: Path, values: torch.Tensor) -> None:
    """Write ``values`` completely or not at all; gzipped if ``path`` ends in ``.gz``. The bytes are always the same."""
    import torch

    codes = {getattr(torch, dtype): code for code, (dtype, _) in _TYPES.items()}
    if values.dtype not in codes:
        raise ValueError(f"IDX has no type for {values.dtype}")
    header = struct.pack(f">HBB{values.dim()}I", 0, codes[values.dtype], values.dim(), *values.shape)
    payload = bytearray(values.numel() * values.element_size())
    if payload:
        raw = values.detach().cpu().reshape(-1).view(torch.uint8)
        torch.frombuffer(payload, dtype=torch.uint8).copy_(_swap(raw, values.element_size()))
    data = header + bytes(payload)
    if path.suffix == ".gz":
        packed = io.BytesIO()
        with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=packed, mtime=0) as file:
            file.write(data)
        data = packed.getvalue()
    write_atomic(path, data)


def _swap(raw: torch.Tensor, itemsize: int) -> torch.Tensor:
    """Bytes (N × itemsize,) from IDX's big-endian order to this machine's, or back."""
    if itemsize == 1 or sys.byteorder == "big":
        return raw
    return raw.view(-1, itemsize).flip(1).reshape(-1)


def _show(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "of a single value"


def _bad(name: str, what: str) -> RankupError:
    return RankupError(
        "bad-idx-file",
        f"{name!r} is not a complete IDX file: {what}",
        hint="check its format, and fetch or copy it again",
    )
