"""The files that a traced script writes: noted before they change, kept as they were, and hashed.

``rankup verify`` runs a script in its own folder. So it must know which files the script writes, to compare them, and
must put them back. Off unless ``RANKUP_WRITTEN`` names verify's directory: there ``before/`` gets what was at a path
when the first process was about to change it, and each attempt's trace gets the paths that it changed.

Python reports each file that it opens, renames or removes (an audit hook). ``torch.save`` is wrapped, because it writes
without Python. Other libraries that do so (safetensors, HDF5, SQLite) are not seen. ``python -m
rankup.runtime.tracing.written_files FOLDER`` prints the digests of what all attempts have written, as JSON.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

VARIABLE = "RANKUP_WRITTEN"
BEFORE = "before"  # the folder of what was there
_TRACE = "RANKUP_TRACE"
_NEVER = ("/dev/", "/proc/", "/sys/")
_DESCRIPTOR = -1  # of a path that is relative to the working directory


class WrittenFiles:
    """Of one process and those that it forks. ``folder``: verify's; ``trace``: the attempt's."""

    def __init__(self, folder: Path, trace: Path, rank: int) -> None:
        self._before = folder / BEFORE
        self._before.mkdir(mode=0o700, exist_ok=True)
        names = trace / f"written-{rank}.txt"
        self._names = os.open(names, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        here, temporary = Path.cwd().resolve(), Path(tempfile.gettempdir()).resolve()
        away = () if here.is_relative_to(temporary) else (f"{temporary}{os.sep}",)
        self._left_out = (*_NEVER, *away, f"{folder.resolve()}{os.sep}")
        self._seen: set[str] = set()

    def hear(self, event: str, values: tuple[Any, ...]) -> None:
        """An audit hook. It must not raise: the script would not open its file."""
        with suppress(OSError, ValueError, TypeError):
            if event == "open" and values[2] & (os.O_WRONLY | os.O_RDWR):
                self.note(values[0])
            elif event == "os.rename" and values[2] == values[3] == _DESCRIPTOR:
                self.note(values[0])
                self.note(values[1])
            elif event == "os.remove" and values[1] == _DESCRIPTOR:
                self.note(values[0])
            elif event == "os.mkdir" and values[2] == _DESCRIPTOR:
                self.note(values[0], list_it=False)

    def note(self, path: Any, *, list_it: bool = True) -> None:
        """``path`` is about to change. ``list_it`` False for a folder, which has no content to compare."""
        if isinstance(path, int):
            return
        name = os.path.realpath(os.fsdecode(path))
        if name in self._seen or name.startswith(self._left_out) or _compiled(name):
            return
        self._seen.add(name)
        self._keep(name)
        if list_it:
            os.write(self._names, f"{name}\n".encode())

    def _keep(self, name: str) -> None:
        """What is there now, unless an earlier process or attempt has kept it."""
        kept = self._before / hashlib.sha256(name.encode()).hexdigest()
        note, path = kept.with_suffix(".json"), Path(name)
        if note.exists():
            return
        existed = path.exists()
        if path.is_file():
            # Renamed into place: a process that is killed meanwhile has not changed the file yet.
            shutil.copy2(path, copy := kept.with_suffix(f".{os.getpid()}"))
            if not kept.exists():
                copy.rename(kept)
        with suppress(FileExistsError), note.open("x") as file:
            json.dump({"path": name, "existed": existed}, file)


def _compiled(name: str) -> bool:
    return name.endswith(".pyc") or "__pycache__" in name


@functools.cache  # once per process, which may make several runs
def watch_files(rank: int) -> None:
    """Begin to note what this process writes, if ``rankup verify`` has asked for it."""
    folder = os.environ.get(VARIABLE)
    if not folder or _TRACE not in os.environ:
        return
    import torch

    files = WrittenFiles(Path(folder), Path(os.environ[_TRACE]), rank)
    original = torch.save

    @functools.wraps(original)
    def save(thing: Any, file: Any, *others: Any, **options: Any) -> None:
        if isinstance(file, (str, os.PathLike)):
            files.note(file)
        original(thing, file, *others, **options)

    torch.save = save  # type: ignore[assignment]
    sys.addaudithook(files.hear)


def contents(path: Path) -> dict[str, str]:
    """Digests of a file, or of a folder with all files in it: of the values that ``torch.save`` wrote, because the same
    values may be written as other bytes, one for each name of a checkpoint; of the bytes of any other file. The name is
    "" for the whole. Empty if there is nothing."""
    if path.is_dir():
        files = [each for each in sorted(path.rglob("*")) if each.is_file()]
        inside = "".join(f"{each.relative_to(path)} {contents(each)}\n" for each in files)
        return {"": hashlib.sha256(inside.encode()).hexdigest()}
    if not path.is_file():
        return {}
    with path.open("rb") as file:
        if file.read(4) == b"PK\x03\x04":
            from rankup.runtime.tracing.saved_values import saved_values

            if (values := saved_values(path)) is not None:
                return values
        file.seek(0)
        hasher = hashlib.sha256()
        while block := file.read(1 << 20):
            hasher.update(block)
        return {"": hasher.hexdigest()}


def written(folder: Path) -> dict[str, str]:
    """path → digest of all files that the attempts in verify's ``folder`` have written so far; ``path [name]`` for each
    part of a checkpoint; "" for a file that is gone."""
    names = {
        name for notes in folder.glob("*/written-*.txt") for name in notes.read_text().splitlines() if name
    }
    found: dict[str, str] = {}
    for name in sorted(names):
        parts = contents(Path(name)) or {"": ""}
        found |= {f"{name} [{part}]" if part else name: digest for part, digest in parts.items()}
    return found


if __name__ == "__main__":
    print(json.dumps(written(Path(sys.argv[1]))))
