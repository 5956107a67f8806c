"""Every change that a save makes on disk. Tests set ``before`` to fail, or to be killed, at any of them.

A change is durable when the file that was written, and the directory that holds its name, have been synchronised.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rankup.errors import RankupError

BLOCK = 8 << 20  # bytes per write

# Called with (what, path) before each change: "mkdir", "write", "fsync", "rename", "point", "remove".
before: Callable[[str, Path], None] | None = None


def _announce(what: str, path: Path) -> None:
    if before is not None:
        before(what, path)


def make_folder(path: Path) -> None:
    _announce("mkdir", path)
    path.mkdir(mode=0o700)


def write_file(path: Path, pieces: Sequence[bytes | memoryview]) -> tuple[int, str]:
    """Write a new file and make its content durable. Returns its size in bytes and its SHA-256.

    A second thread hashes the content in memory, since hashing takes about as long as writing. If the disk stores
    something else, the first verification finds it.
    """
    blocks = [
        memoryview(piece)[start : start + BLOCK] for piece in pieces for start in range(0, len(piece), BLOCK)
    ]
    digest = hashlib.sha256()

    def digest_all() -> None:
        for block in blocks:
            digest.update(block)

    hashing = threading.Thread(target=digest_all, daemon=True)
    hashing.start()
    _announce("create", path)
    with path.open("xb", buffering=0) as file:
        for block in blocks:
            _announce("write", path)
            _write_whole(file.fileno(), block)
        _announce("fsync", path)
        os.fsync(file.fileno())
    hashing.join()
    return sum(map(len, blocks)), digest.hexdigest()


def _write_whole(descriptor: int, block: memoryview) -> None:
    """A disk that fills up may take only a part of a block, without an error."""
    while len(block):
        block = block[os.write(descriptor, block) :]


def sync_folder(path: Path) -> None:
    """Make the names in ``path`` durable."""
    _announce("fsync", path)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename(source: Path, target: Path) -> None:
    """Give a directory another name; never replace an existing one."""
    _announce("rename", source)
    if target.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    source.rename(target)


def update_symlink(link: Path, target: str) -> None:
    """Let the symbolic link ``link`` point to ``target``. It is replaced atomically: no reader finds it missing."""
    fresh = link.with_name(f"{link.name}.tmp")
    _announce("point", link)
    with contextlib.suppress(FileNotFoundError):
        fresh.unlink()
    fresh.symlink_to(target)
    _announce("rename", fresh)
    fresh.replace(link)


def remove(path: Path) -> None:
    """Delete a file, or a directory with what is in it."""
    _announce("remove", path)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn an error of the file system into the error that a user sees. ``path`` is what was to be written."""
    try:
        yield
    except OSError as error:
        where = f"{error.filename or path}: {error.strerror}"
        unharmed = "the earlier snapshots are untouched; "
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise RankupError(
                "no-space",
                "no space left for a snapshot: the disk is full or the quota is exceeded",
                context=where,
                hint=unharmed + "free some space, keep fewer snapshots, or use another directory",
                exit_code=1,
            ) from error
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise RankupError(
                "unwritable-directory",
                f"cannot write snapshots to {str(path)!r}",
                context=where,
                hint=unharmed + "use a directory that is writable on every node",
                exit_code=1,
            ) from error
        raise RankupError(
            "snapshot-not-written",
            f"failed to write a snapshot to {str(path)!r}",
            context=where,
            hint=unharmed + "if this happens again, ask the administrators of the file system",
            exit_code=1,
        ) from error
