"""What a script writes and prints while it is verified. Files are hashed after each training, and put back as they
were; of what it prints the numbers of the last lines count, and whether rankup said that something was lost.

A script reads and writes in its own folder, so every training must find there what the first one found: a checkpoint of
an earlier attempt may change what a script does. And a proof must leave nothing that the real training would read.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from rankup.core import shell
from rankup.core.plain_text import plain
from rankup.errors import RankupError
from rankup.verify.two_files import UNINTERRUPTED, Copies, TwoFiles

BEFORE = "before"  # runtime/tracing/written_files.py writes it
WRITTEN = "written"  # the folder of copies

# path → digest; ``path PART name`` → that of a value in it, with ``ASIDE`` before it; "" if there is no file. As
# runtime/tracing/written_files.py and saved_values.py say it.
Digests = dict[str, str]
PART, ASIDE = "\0", "aside "
ASIDE_NOTE = "other after a resume, as texts, arguments or generators that no step depends on: "
_SHOWN = 3  # files of a list


_ENDS = (signal.SIGTERM, signal.SIGHUP)


def _end(number: int, _: object) -> None:
    raise RankupError(
        "interrupted",
        f"ended by {signal.Signals(number).name} between two attempts",
        hint="nothing is proved; the files that the script writes are as they were",
        exit_code=128 + number,
    )


class ScriptFiles:
    """Of all attempts in ``folder``. Its end puts the files back, whatever happened: between two attempts, where no
    run listens, a signal that asks to end is an error."""

    def __init__(self, folder: Path, python: str) -> None:
        self._folder = folder
        self._python = python
        self._copies = Copies(folder / WRITTEN)
        self._first: Digests = {}
        self._asked = False
        self._listened: list[signal.Signals] = []

    def __enter__(self) -> ScriptFiles:
        if threading.current_thread() is threading.main_thread():
            self._listened = [each for each in _ENDS if signal.getsignal(each) is signal.SIG_DFL]
        for each in self._listened:
            signal.signal(each, _end)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self._listened:
            signal.signal(each, signal.SIG_IGN)
        try:
            self.put_back()
        finally:
            for each in self._listened:
                signal.signal(each, signal.SIG_DFL)
        if not self._asked:
            self._copies.drop()

    def after_training(self, copies: str = "") -> Digests:
        """The digests of all files that were written so far, as the training that has just ended left them. ``copies``:
        what to call those that are kept of them, ``UNINTERRUPTED`` or ``RESUMED``."""
        found: Digests = {}
        if any(notes.stat().st_size for notes in self._folder.glob("*/written-*.txt")):
            found = self._hashed()
            if copies == UNINTERRUPTED:
                self._first, keys = found, set(found)
            else:  # what differs
                keys = {
                    key for key in found.keys() | self._first.keys() if found.get(key) != self._first.get(key)
                }
            if copies:
                self._copies.keep(copies, sorted({path for key in keys if found.get(path := _path(key))}))
        self.put_back()
        return found

    def two_of(self, first: Digests, again: Digests, other: Digests) -> list[TwoFiles]:
        """Of each of the ``other_files``: the copies, which stay in the proof's folder, and where they differ first."""
        self._asked = True
        found = _by_path(_other_counting(first, again, other))
        missing = [path for path in found if not other.get(path)]
        return self._copies.of(list(found), missing=missing, named=[path for path in found if found[path]])

    def _hashed(self) -> Digests:
        words = [self._python, "-m", "rankup.runtime.tracing.written_files", str(self._folder)]
        done = shell.run(words, timeout=600)
        if done.code == 0:
            return {str(path): str(digest) for path, digest in json.loads(done.out).items()}
        raise RankupError(
            "files-not-compared",
            f"the files that the script writes could not be read: {done.err.strip()[-300:]}",
            context=str(self._folder),
            exit_code=1,
        )

    def put_back(self) -> None:
        """Each path as it was before the first attempt. Files before the folders that they are in."""
        notes = []
        for note in (self._folder / BEFORE).glob("*.json"):
            with suppress(ValueError):  # a process was killed while it wrote it, and has changed nothing
                notes.append((json.loads(note.read_text()), note.with_suffix("")))
        for note, kept in sorted(notes, key=lambda pair: len(pair[0]["path"]), reverse=True):
            try:
                _put_back(Path(note["path"]), kept, existed=note["existed"])
            except OSError as error:
                raise RankupError(
                    "file-not-put-back",
                    f"a file that the script has written could not be put back as it was: {error}",
                    context=note["path"],
                    hint=f"it was copied to {kept}" if note["existed"] else "remove it",
                    exit_code=1,
                ) from None


def _put_back(path: Path, kept: Path, *, existed: bool) -> None:
    if existed:
        if kept.is_file() and not _same(kept, path):
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(kept, path)
    elif path.is_dir():
        shutil.rmtree(path)  # it is new, and so is all that is in it
    else:
        path.unlink(missing_ok=True)


def _same(kept: Path, path: Path) -> bool:
    """Whether the file has not changed: a copy keeps its time."""
    if not path.exists():
        return False
    one, other = kept.stat(), path.stat()
    return (one.st_size, one.st_mtime_ns) == (other.st_size, other.st_mtime_ns)


def whole_files(found: Digests) -> list[str]:
    """The paths of the files that are there, without the names of parts."""
    return sorted({_path(key) for key, digest in found.items() if digest})


TOO_LARGE = "too large"  # instead of a digest


def too_large(first: Digests) -> list[str]:
    """Files that are not compared, because of their size."""
    return [path for path, digest in first.items() if digest == TOO_LARGE]


def clocklike(first: Digests, again: Digests) -> list[str]:
    """Files that two uninterrupted trainings write differently, such as a log with times."""
    return _named(key for key, digest in first.items() if digest and again.get(key, "") != digest)


def other_files(first: Digests, again: Digests, other: Digests) -> list[str]:
    """Files that both uninterrupted trainings left equal, and the ``other`` one did not, each with the first value in
    it that differs. What is ``ASIDE`` is none."""
    return _named(_other_counting(first, again, other))


def other_aside(first: Digests, again: Digests, other: Digests) -> list[str]:
    """As ``other_files``, of what is ``ASIDE``."""
    return _named(key for key in _other(first, again, other) if _is_aside(key, first, other))


def _other_counting(first: Digests, again: Digests, other: Digests) -> list[str]:
    return [key for key in _other(first, again, other) if not _is_aside(key, first, other)]


def _other(first: Digests, again: Digests, other: Digests) -> list[str]:
    new = (key for key in other if key not in first and first.get(_path(key)))
    keys = [*(key for key, digest in first.items() if digest), *new]
    return [
        key
        for key in keys
        if again.get(key, "") == first.get(key, "") and other.get(key, "") != first.get(key, "")
    ]


def _is_aside(key: str, first: Digests, other: Digests) -> bool:
    """A value that one of the files has not is aside if the other's is."""
    found = [digest for digest in (first.get(key), other.get(key)) if digest]
    return PART in key and all(digest.startswith(ASIDE) for digest in found)


def _named(keys: Iterable[str]) -> list[str]:
    """A line for each file: ``path``, ``path [name]`` or ``path [name and 3 more]``."""
    return [
        f"{path} [{names[0]}{f' and {len(names) - 1} more' if names[1:] else ''}]" if names else path
        for path, names in _by_path(keys).items()
    ]


def _by_path(keys: Iterable[str]) -> dict[str, list[str]]:
    """The names of values of each file."""
    found: dict[str, list[str]] = {}
    for key in keys:
        path, _, name = key.partition(PART)
        found.setdefault(path, []).extend([name] if name else [])
    return found


def _path(key: str) -> str:
    return key.partition(PART)[0]


def short(paths: list[str]) -> str:
    """Names of files: below the current folder without it."""
    here = f"{Path.cwd().resolve()}{os.sep}"
    names = [path.removeprefix(here) for path in paths[:_SHOWN]]
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return ", ".join(names) + more


LAST_LINES = 20
_MOST_BYTES = 1 << 20
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|\b(?:nan|inf)\b")
_LOST = re.compile(r"\[state-lost\]|^\s*warning: .*\blost\b")


def last_lines(logs: Path) -> tuple[str, ...]:
    """The last lines of rank 0's standard output."""
    return tuple(line.rstrip() for line in _lines(logs / "rank-0.out") if line.strip())[-LAST_LINES:]


def lost_lines(logs: Path) -> tuple[str, ...]:
    """What rankup said on any rank about state that was lost."""
    return tuple(
        line.strip()
        for path in sorted(logs.glob("rank-*.err"))
        for line in _lines(path)
        if _LOST.search(line)
    )


def other_numbers(first: Sequence[str], again: Sequence[str], other: Sequence[str]) -> tuple[str, str] | None:
    """The last line of ``first`` whose numbers are others in ``other``, and that one's line. Lines in which the two
    uninterrupted trainings differ, such as one with a time, are left out.

    A resumed training prints fewer lines, so they are compared from the end, as long as their words are the same.
    """
    for mine, twin, theirs in zip(reversed(first), reversed(again), reversed(other), strict=False):
        if mine != twin or mine == theirs:
            continue
        if _NUMBER.sub("0", mine) != _NUMBER.sub("0", theirs):
            return None
        return mine, theirs
    return None


def _lines(path: Path) -> Iterator[str]:
    """Of the last part of a log."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _MOST_BYTES))
        yield from map(plain, file.read().decode(errors="replace").splitlines())
