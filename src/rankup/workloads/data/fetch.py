"""The download: it tries one mirror after another, verifies each file, and only then writes it. One process at a time.

The files are small (161 MB at most), so a download stays in memory until its checksum is right. If the process or the
network fails before that, nothing is on disk.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import http.client
import io
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rankup.core.files import locked, make_folder, write_atomic
from rankup.errors import RankupError
from rankup.workloads.data.catalog import Dataset, RemoteFile, dataset

TIMEOUT = 30.0
"""After so many seconds without an answer or a byte, the next mirror is tried."""

Progress = Callable[[str, int, int], None]
"""Called with a file's name, the number of bytes so far, and its size in bytes."""

_CHUNK = 1 << 18


class _MirrorFailed(Exception):
    """This mirror did not serve this file; the next one may."""


class _WrongChecksum(_MirrorFailed):
    pass


def fetch(
    name: str, directory: Path, *, mirrors: Sequence[str] | None = None, progress: Progress | None = None
) -> list[str]:
    """Put the files of the data set ``name`` into ``directory``. Returns the names of the downloaded files.

    An existing file is kept if it is right, gzipped or not. If it is wrong, it is an error, because it may be the
    user's own. ``mirrors`` are URLs of folders and replace the usual ones.
    """
    known = dataset(name)
    if not _missing(known, directory):
        return []  # before the lock, because a complete directory may be read-only
    make_folder(directory, purpose="data directory")
    urls = known.mirrors if mirrors is None else mirrors
    written = []
    with _one_at_a_time(directory):
        for filename, data in _arriving(known, _missing(known, directory), urls, progress):
            _write(directory / filename, data)
            written.append(filename)
    return written


def _arriving(
    known: Dataset, missing: list[RemoteFile], mirrors: Sequence[str], progress: Progress | None
) -> Iterator[tuple[str, bytes]]:
    """(file name, content) of each missing file, verified, from a download of its own or from the archive."""
    if known.archive is None:
        for file in missing:
            yield f"{file.name}.gz", _download(known, file, mirrors, progress)
    elif missing:
        packed = io.BytesIO(_download(known, known.archive, mirrors, progress))
        wanted = {file.name for file in missing}
        with tarfile.open(fileobj=packed, mode="r:gz") as archive:
            for member in archive:
                name = Path(member.name).name  # the last part only: a path in an archive may lead anywhere
                if name in wanted and (content := archive.extractfile(member)):
                    yield name, content.read()


def _write(path: Path, data: bytes) -> None:
    try:
        write_atomic(path, data)
    except OSError as error:
        raise RankupError(
            "cannot-write-data",
            f"cannot write {path.name}: {error.strerror}",
            context=str(path.parent),
            hint="choose a writable directory with enough space",
            exit_code=1,
        ) from error


def _missing(known: Dataset, directory: Path) -> list[RemoteFile]:
    """The missing files. Raises an error if an existing file is wrong."""
    missing = []
    for file in known.files:
        packed = _verify(directory / f"{file.name}.gz", file, known.name)
        plain = _verify(directory / file.name, file, known.name)
        if not (packed or plain):
            missing.append(file)
    return missing


def _verify(path: Path, file: RemoteFile, name: str) -> bool:
    """Whether ``path`` exists. Raises an error if it exists and is wrong."""
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise RankupError(
            "unreadable-data",
            f"cannot read {str(path)!r}: {error.strerror}",
            hint="check the path and its permissions",
        ) from error
    if not _is_right(data, file):
        raise RankupError(
            "wrong-file",
            f"{str(path)!r} exists, and is not the {file.name} of {name}",
            context=f"SHA-256 expected {_expected(file)}, found {_sha256(data)}",
            hint="remove it, or fetch into another directory; rankup does not overwrite it",
        )
    return True


def _is_right(data: bytes, file: RemoteFile) -> bool:
    digest = _sha256(data)
    if digest in (file.sha256, file.content_sha256):
        return True
    try:
        return _sha256(gzip.decompress(data)) == file.content_sha256
    except (OSError, EOFError, zlib.error):
        return False


def _expected(file: RemoteFile) -> str:
    return f"{file.sha256} (unpacked {file.content_sha256})" if file.sha256 else file.content_sha256


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@contextlib.contextmanager
def _one_at_a_time(directory: Path) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(directory / ".fetch.lock"))
        except OSError as error:
            # Some Lustre and NFS mounts have no locks. Then two processes may download the same file, without harm.
            if error.errno not in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):
                raise
        yield


def _download(known: Dataset, file: RemoteFile, mirrors: Sequence[str], progress: Progress | None) -> bytes:
    """The file from the first mirror that serves it correctly. If none does, one error names the reason of each."""
    failures: list[_MirrorFailed] = []
    for mirror in mirrors:
        url = f"{mirror.rstrip('/')}/{file.name}.gz"
        try:
            data = _get(url, file, progress)
        except _MirrorFailed as failure:
            failures.append(failure)
        else:
            if _sha256(data) == file.sha256:
                return data
            failures.append(_WrongChecksum(f"{url}: SHA-256 expected {file.sha256}, found {_sha256(data)}"))
    if any(isinstance(failure, _WrongChecksum) for failure in failures):
        code, what = "wrong-checksum", "the downloaded file has a wrong checksum"
        why = "a proxy may have answered instead of the mirror"
    else:
        code, what, why = "download-failed", "no mirror served it", "most compute nodes have no internet"
    debian = f", or `apt install {known.debian_package}`" if known.debian_package else ""
    raise RankupError(
        code,
        f"cannot download {file.name}.gz of {known.name}: {what}",
        context="; ".join(map(str, failures)),
        hint=f"{why}: run `rankup data fetch {known.name} DIR` on a login node, or copy its files"
        f"{debian}; then `--data DIR`",
        exit_code=1,
    )


def _get(url: str, file: RemoteFile, progress: Progress | None) -> bytes:
    """The whole content of ``url``, but not much more than the size of the file."""
    data = bytearray()
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "rankup"})
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            announced = int(answer.headers["Content-Length"] or 0)
            while len(data) <= file.size and (chunk := answer.read(_CHUNK)):
                data += chunk
                if progress:
                    progress(f"{file.name}.gz", len(data), file.size)
    except urllib.error.HTTPError as error:
        error.close()
        raise _MirrorFailed(f"{url}: HTTP {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise _MirrorFailed(f"{url}: {error.reason}") from error
    except http.client.IncompleteRead as error:
        raise _MirrorFailed(f"{url}: the connection ended after {len(data)} bytes") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _MirrorFailed(f"{url}: {error}") from error
    if len(data) < min(announced, file.size):
        raise _MirrorFailed(f"{url}: the connection ended after {len(data)} of {announced} bytes")
    return bytes(data)
