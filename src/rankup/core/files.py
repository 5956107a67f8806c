"""Files that are never half written, and sections that one process enters at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from rankup.errors import RankupError


def write_atomic(path: Path, data: str | bytes, *, mode: int = 0o644) -> None:
    """Write the whole of ``path`` or nothing: a temporary file beside it, fsync, rename, fsync of the folder."""
    raw = data.encode() if isinstance(data, str) else data
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(raw)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file for the body to write. It becomes ``path`` when all of it is durable; if that fails, nothing is left."""
    half = path.with_name(f".{path.name}.half")
    try:
        with half.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        half.replace(path)
    finally:
        with contextlib.suppress(OSError):
            half.unlink(missing_ok=True)


@contextlib.contextmanager
def writing_to(folder: Path, what: str) -> Iterator[None]:
    """Turn the body's ``OSError`` (a full disk, a file system that is read-only) into an error that names ``what``."""
    try:
        yield
    except OSError as error:
        raise RankupError(
            "unwritable-directory",
            f"cannot write to the {what}: {error.strerror or error}",
            context=str(folder),
            hint="make room there, or choose another place: --runs-root DIR",
        ) from error


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an advisory lock on ``path`` (made if missing) while the body runs; waits for its holder."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def make_folder(path: Path, *, mode: int = 0o755, purpose: str) -> Path:
    """Make ``path`` and its parents; an error that names ``purpose`` where the file system refuses."""
    try:
        path.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as error:
        raise RankupError(
            "unwritable-directory",
            f"cannot make the {purpose} {str(path)!r}: {error.strerror}",
            hint="choose a directory that you may write to",
        ) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise RankupError(
            "unwritable-directory",
            f"the {purpose} {str(path)!r} is not writable",
            hint="choose a directory that you may write to",
        )
    return path
