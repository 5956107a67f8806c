"""CIFAR-100 as tensors, from its binary version, plain or gzipped. A file has no header. Each image has a coarse label
(0..19), a fine label (0..99), then 3,072 pixels: 32×32 of red, of green, of blue, row by row.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from rankup.errors import RankupError
from rankup.workloads.data.catalog import CIFAR100_BINARY, CIFAR_TEST, CIFAR_TRAIN
from rankup.workloads.data.places import find_or_fetch, path_of

if TYPE_CHECKING:
    import torch

CLASSES = 100
_COARSE = 20
_SHAPE = (3, 32, 32)
_RECORD = 2 + 3 * 32 * 32  # bytes


def load_cifar100(source: str, *, train: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The training or the test set: images uint8 (N, 3, 32, 32), fine labels int64 (N,) in 0..99.

    ``source`` is ``cifar100``, which is downloaded if it is not on this machine, or a directory with
    ``train.bin`` and ``test.bin``. Raises ``bad-cifar-file`` for an incomplete file, or one of other data.
    """
    path = path_of(find_or_fetch(source, CIFAR100_BINARY), CIFAR_TRAIN if train else CIFAR_TEST)
    assert path  # find_or_fetch saw it
    return read_cifar100(path)


def read_cifar100(path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Images uint8 (N, 3, 32, 32) and fine labels int64 (N,) of one file."""
    import torch

    data = _read(path)
    if not data or len(data) % _RECORD:
        raise _bad(path, f"its {len(data):,} bytes are not a multiple of {_RECORD:,}, the size of an image")
    records = torch.frombuffer(data, dtype=torch.uint8).view(-1, _RECORD)
    coarse, fine = int(records[:, 0].max()), int(records[:, 1].max())
    if coarse >= _COARSE or fine >= CLASSES:
        raise _bad(path, f"its labels go up to {coarse} and {fine}, not {_COARSE - 1} and {CLASSES - 1}")
    return records[:, 2:].reshape(-1, *_SHAPE), records[:, 1].long()


def _read(path: Path) -> bytearray:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return bytearray(file.read())
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _bad(path, f"its gzip compression is damaged: {error}") from error
    except OSError as error:
        raise RankupError(
            "unreadable-data",
            f"cannot read {str(path)!r}: {error.strerror}",
            hint="check the path and its permissions",
        ) from error


def _bad(path: Path, why: str) -> RankupError:
    return RankupError(
        "bad-cifar-file",
        f"{str(path)!r} is not CIFAR-100's binary version: {why}",
        hint="the file may be damaged, or of another data set: remove it and run `rankup data fetch cifar100`",
    )
