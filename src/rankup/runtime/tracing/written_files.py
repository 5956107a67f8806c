"""The files that a traced script writes: noted before they change, kept as they were, and hashed.

``rankup verify`` runs a script in its own folder. So it must know which files the script writes, to compare them, and
must put them back. Off unless ``RANKUP_WRITTEN`` names verify's directory: there ``before/`` gets what was at a path
when the first process was about to change it, and each attempt's trace gets the paths that it changed.

Python reports each file that it opens, renames or removes, and each SQLite database (an audit hook). ``WRITERS`` and
h5py are wrapped, because they write without Python. Other libraries that do so are not seen. What is written is also
told to ``saves.py``; a database is no save: SQLite undoes what a kill has left half written.
``python -m rankup.runtime.tracing.written_files FOLDER`` prints the digests of what all attempts have written, as JSON.

A file that is too large to be kept must not change: verify could not put it back, so the attempt ends before it does.
What is too large to be compared is only named.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rankup.runtime.tracing.saves import SAVES

VARIABLE = "RANKUP_WRITTEN"
BEFORE = "before"  # the folder of what was there
_TRACE = "RANKUP_TRACE"
_NEVER = ("/dev/", "/proc/", "/sys/")
_DESCRIPTOR = -1  # of a path that is relative to the working directory
# Bytes that are kept of all files together, and of one file that is compared.
LIMIT_VARIABLE, LIMIT = "RANKUP_WRITTEN_LIMIT", 4 << 30
TOO_LARGE = "too large"  # instead of a digest
PART = "\0"  # between a path and the name of a value in it
REFUSED = "refused.txt"  # in verify's folder: the file that is too large to be kept
WRITERS = (("torch", "save"), ("safetensors", "serialize_file"))  # their second argument is the file
_DATABASE = "sqlite3.connect"
_CHANGES = frozenset(f"os.{name}" for name in ("rename", "remove", "mkdir", "rmdir", "link", "symlink")) | {
    "shutil.rmtree",
    "shutil.move",
}


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
        self._limit = limit() - sum(kept.stat().st_size for kept in self._before.iterdir())

    def hear(self, event: str, values: tuple[Any, ...]) -> None:
        """An audit hook. It must not raise for another reason: the script would not open its file."""
        if event not in ("open", _DATABASE) and event not in _CHANGES:
            return
        with suppress(OSError, ValueError, TypeError):
            if event == "open":
                path, _, flags = values
                if not isinstance(path, int) and flags & (os.O_WRONLY | os.O_RDWR):
                    self.opens(path, anew=bool(flags & (os.O_TRUNC | os.O_EXCL)))
                return
            renamed = event == "os.rename" and values[2] == values[3] == _DESCRIPTOR
            names = [os.path.realpath(os.fsdecode(each)) for each in values[:2]] if renamed else []
            if renamed and not names[1].startswith(self._left_out):
                SAVES.renames(*names)
            else:
                SAVES.settles()
            if event == _DATABASE and not str(values[0]).startswith(("file:", ":memory:")):
                for ending in ("", "-journal", "-wal", "-shm"):
                    self.note(f"{os.fsdecode(values[0])}{ending}")
            elif renamed:
                self.note(values[0])
                self.note(values[1])
            elif event == "os.remove" and values[1] == _DESCRIPTOR:
                self.note(values[0])
            elif event == "os.mkdir" and values[2] == _DESCRIPTOR:
                self.note(values[0], list_it=False)

    def opens(self, path: Any, *, anew: bool = True, called: bool = False) -> None:
        """``path`` is about to be written, ``anew``: from its beginning; ``called``: by a function that saves."""
        name = os.path.realpath(os.fsdecode(path))
        if name.startswith(self._left_out) or _compiled(name) or Path(name).is_dir():
            return
        if anew:
            SAVES.begins(name, called=called)
        else:
            SAVES.settles()
        self.note(name)

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
            copy = kept.with_suffix(f".{os.getpid()}")
            try:
                self._limit -= path.stat().st_size
                if self._limit < 0:
                    raise OSError(f"the limit is {limit():,} bytes")
                shutil.copy2(path, copy)
            except OSError as error:
                self._before.with_name(REFUSED).write_text(f"{name}\n{error}\n")
                raise SystemExit(f"rankup verify cannot keep a copy of {name}: {error}") from None
            if not kept.exists():
                copy.rename(kept)
        with suppress(FileExistsError), note.open("x") as file:
            json.dump({"path": name, "existed": existed}, file)


def _compiled(name: str) -> bool:
    return name.endswith(".pyc") or "__pycache__" in name


@functools.cache  # once per process, which may make several runs
def watch_files(rank: int) -> None:
    """In a traced process: begin to note what it writes, if ``rankup verify`` has asked for it. Its saves are counted
    all the same."""
    folder = os.environ.get(VARIABLE)
    files = WrittenFiles(Path(folder), Path(os.environ[_TRACE]), rank) if folder else None
    wraps = {module: functools.partial(_wrap_writer, files, module, name) for module, name in WRITERS}
    wraps["h5py"] = functools.partial(_wrap_hdf5, files)
    for module, wrap in wraps.items():
        if module in sys.modules:
            wrap()
        else:
            _LATER[module] = wrap
    if files is not None:
        sys.addaudithook(files.hear)


# Writers of modules that are not imported yet: startup/sitecustomize.py calls them after the import.
_LATER: dict[str, Callable[[], None]] = {}


def imported(module: str) -> None:
    if module in _LATER:
        _LATER.pop(module)()


def _wrap_writer(files: WrittenFiles | None, module: str, name: str) -> None:
    original = getattr(sys.modules[module], name)

    @functools.wraps(original)
    def save(thing: Any, file: Any, *others: Any, **options: Any) -> Any:
        is_path = isinstance(file, (str, os.PathLike))
        if is_path and files is not None:
            files.opens(file, called=True)
        elif is_path:
            SAVES.begins(os.path.realpath(os.fsdecode(file)), called=True)
        else:
            SAVES.called()
        done = original(thing, file, *others, **options)
        if is_path:
            SAVES.settles()
        return done

    setattr(sys.modules[module], name, save)


def _wrap_hdf5(files: WrittenFiles | None) -> None:
    opened = sys.modules["h5py"].File
    original = opened.__init__

    @functools.wraps(original)
    def init(self: Any, name: Any, mode: str = "r", *others: Any, **options: Any) -> None:
        if mode != "r" and isinstance(name, (str, bytes, os.PathLike)):
            anew = mode in ("w", "w-", "x")
            if files is not None:
                files.opens(name, anew=anew, called=True)
            elif anew:
                SAVES.begins(os.path.realpath(os.fsdecode(name)), called=True)
        original(self, name, mode, *others, **options)

    opened.__init__ = init


def limit() -> int:
    return int(os.environ.get(LIMIT_VARIABLE, LIMIT))


def contents(path: Path) -> dict[str, str]:
    """Digests of a file: of each value in it (``saved_values.py``), and "" for that it is there; or, under "", of the
    bytes of a file of another kind. Empty if there is no file."""
    if not path.is_file():
        return {}
    if path.stat().st_size > limit() // 4:
        return {"": TOO_LARGE}
    from rankup.runtime.tracing.saved_values import saved_values

    if (values := saved_values(path)) is not None:
        return {"": "values", **values}
    with path.open("rb") as file:
        hasher = hashlib.sha256()
        while block := file.read(1 << 20):
            hasher.update(block)
        return {"": hasher.hexdigest()}


def written(folder: Path) -> dict[str, str]:
    """path → digest of all files that the attempts in verify's ``folder`` have written so far, also of those in folders
    that they renamed; ``path PART name`` for each value in it; "" for a file that is gone."""
    names = {
        name for notes in folder.glob("*/written-*.txt") for name in notes.read_text().splitlines() if name
    }
    folders = [Path(name) for name in names if Path(name).is_dir()]
    names |= {str(path) for each in folders for path in each.rglob("*") if path.is_file()}
    found: dict[str, str] = {}
    for name in sorted(names - {*map(str, folders)}):
        parts = contents(Path(name)) or {"": ""}
        found |= {f"{name}{PART}{part}" if part else name: digest for part, digest in parts.items()}
    return found


if __name__ == "__main__":
    print(json.dumps(written(Path(sys.argv[1]))))
