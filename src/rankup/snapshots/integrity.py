"""Verifies that a snapshot is what was written: sizes first, then the SHA-256 of every file. No torch here."""

from __future__ import annotations

import errno
import hashlib
from pathlib import Path

from rankup.errors import RankupError
from rankup.snapshots.layout import MANIFEST
from rankup.snapshots.manifest import Damaged, Manifest, read_manifest, read_sums

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
