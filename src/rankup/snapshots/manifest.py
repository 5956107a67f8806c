"""``manifest.json`` and ``SHA256SUMS``: what a snapshot contains, and how to check it.

``SHA256SUMS`` covers every file of the snapshot, the manifest too, in the format of ``sha256sum -c``. No torch here, so
that a login node can do it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rankup.errors import RankupError
from rankup.snapshots.layout import MANIFEST, SUMS

FORMAT = 3
_SUM = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9._-]+)")


class Damaged(Exception):
    """The snapshot is not what was written; the message says what is wrong."""


class Chunk(NamedTuple):
    """A box of a tensor: ``sizes`` elements from ``offsets`` on, stored row by row from byte ``at`` of ``file``."""

    file: str
    at: int
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class SavedTensor:
    """A whole tensor in parts. ``dtype`` as in torch, without ``torch.``."""

    dtype: str
    shape: tuple[int, ...]
    chunks: tuple[Chunk, ...]

    @property
    def held(self) -> int:
        """How many elements the chunks have."""
        return sum(math.prod(chunk.sizes) for chunk in self.chunks)


class SavedState(NamedTuple):
    """The state of one rank: ``size`` bytes from byte ``at`` of ``file``, as ``torch.save`` writes it."""

    file: str
    at: int
    size: int


@dataclass(frozen=True)
class Manifest:
    """``node`` and ``nodes`` say whose part this is where the directory was not ``shared``; ``saved`` is in epoch
    seconds; ``files`` holds sizes in bytes; ``metadata`` is ``SnapshotState.metadata``; ``states`` is by rank."""

    format: int
    step: int
    saved: float
    world_size: int
    shared: bool
    node: int
    nodes: int
    versions: dict[str, str]
    metadata: dict[str, Any]
    tensors: dict[str, SavedTensor]
    states: dict[int, SavedState]
    files: dict[str, int]

    @property
    def complete(self) -> bool:
        """Whether every tensor can be read from here alone."""
        return all(tensor.held == math.prod(tensor.shape) for tensor in self.tensors.values())

    @property
    def size(self) -> int:
        """Bytes of all files but the manifest and the sums."""
        return sum(self.files.values())

    def text(self) -> str:
        """JSON with a line for each field, and for each file, tensor and state."""
        tensors = {name: vars(saved) for name, saved in self.tensors.items()}
        rows = {
            **vars(self),
            "tensors": _Rows(tensors),
            "states": _Rows(self.states),
            "files": _Rows(self.files),
        }
        return _lines(rows) + "\n"


class _Rows(dict[Any, Any]):
    """A dict that is written with a line for each of its items."""


def _lines(rows: dict[Any, Any]) -> str:
    lines = (
        f"{json.dumps(str(key))}: {_lines(v) if isinstance(v, _Rows) else json.dumps(v)}"
        for key, v in rows.items()
    )
    return "{\n" + ",\n".join(lines) + "\n}"


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a snapshot, unverified. Raises ``Damaged``, and RankupError for another format's."""
    try:
        found = json.loads((folder / MANIFEST).read_bytes())
        if found["format"] != FORMAT:
            raise RankupError(
                "other-format",
                f"the snapshot has format {found['format']}, but this version of rankup reads format {FORMAT}",
                context=f"{folder} (written with {found.get('versions')})",
                hint="use the version of rankup that wrote it",
            )
        tensors = {name: _tensor(saved) for name, saved in found["tensors"].items()}
        states = {int(rank): SavedState(*saved) for rank, saved in found["states"].items()}
        return Manifest(**{**found, "tensors": tensors, "states": states})
    except FileNotFoundError:
        raise Damaged(f"{MANIFEST} is missing") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"cannot read {MANIFEST}: {error}") from error


def _tensor(saved: dict[str, Any]) -> SavedTensor:
    chunks = tuple(
        Chunk(file, at, tuple(offsets), tuple(sizes)) for file, at, offsets, sizes in saved["chunks"]
    )
    return SavedTensor(saved["dtype"], tuple(saved["shape"]), chunks)


def sums_text(sums: dict[str, str]) -> str:
    """``SHA256SUMS`` of file → hash."""
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items()))


def read_sums(folder: Path) -> dict[str, str]:
    """File → SHA-256. Raises ``Damaged`` unless every byte is as ``sums_text`` writes it."""
    try:
        text = (folder / SUMS).read_bytes().decode("ascii")
    except FileNotFoundError:
        raise Damaged(f"{SUMS} is missing") from None
    except UnicodeDecodeError:
        raise Damaged(f"cannot read {SUMS}") from None
    matches = [_SUM.fullmatch(line) for line in text.split("\n")[:-1]]
    sums = {match[2]: match[1] for match in matches if match}
    if sums_text(sums) != text:
        raise Damaged(f"cannot read {SUMS}")
    return sums


_BLOCK = 4 << 20
# Missing, or unreadable on the disk itself; EUCLEAN means that the file system knows that it is corrupt.
_LOST = {errno.ENOENT, errno.ENOTDIR, errno.EIO, getattr(errno, "EUCLEAN", errno.EIO)}


def verify(folder: Path, *, part: int = 0, parts: int = 1) -> Manifest:
    """The manifest of a good snapshot; raises ``Damaged`` with the first thing that is wrong.

    Several ranks share the work: each verifies every ``parts``-th file, and all verify the manifest.
    Raises RankupError if the snapshot cannot be read at all, or is undamaged but has another format.
    """
    try:
        return _verify(folder, part, parts)
    except OSError as error:
        if error.errno in _LOST:
            raise Damaged(f"{Path(error.filename or folder).name}: {error.strerror}") from error
        raise RankupError(
            "unreadable-snapshot",
            f"cannot read the snapshot {str(folder)!r}",
            context=f"{error.filename or folder}: {error.strerror}",
            hint="run as the user who wrote it, or change its permissions",
            exit_code=1,
        ) from error


def _verify(folder: Path, part: int, parts: int) -> Manifest:
    if not folder.is_dir():
        raise Damaged("the directory is missing")
    sums = read_sums(folder)
    # Before the manifest is parsed: a damaged one must not be reported as another format.
    _compare(folder, MANIFEST, sums.get(MANIFEST, ""))
    manifest = read_manifest(folder)
    if sums.keys() != manifest.files.keys() | {MANIFEST}:
        raise Damaged("SHA256SUMS and manifest.json list different files")
    mine = sorted(manifest.files)[part::parts]
    for name in mine:
        found = (folder / name).stat().st_size
        if found != manifest.files[name]:
            raise Damaged(f"{name} has {found:,} bytes, expected {manifest.files[name]:,}")
    for name in mine:
        _compare(folder, name, sums[name])
    return manifest


def _compare(folder: Path, name: str, expected: str) -> None:
    if sha256(folder / name) != expected:
        raise Damaged(f"the SHA-256 of {name} does not match SHA256SUMS")


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
