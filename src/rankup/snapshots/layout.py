"""Names below a directory of snapshots, and which of these it keeps. The program reads the listing of the directory;
``latest`` is for people.

| name | what |
|---|---|
| ``step-N``, ``step-N-2`` | a snapshot; ``-2`` if the same step was saved again: that one is newer |
| ``step-N.tmp`` | being written, or deleted; useless once its run has ended |
| ``step-N.damaged``, ``step-N.damaged-2`` | damaged, or newer than the newest that is good on all nodes |
| ``latest`` | link to the snapshot that was written last |
| ``.lock`` | held by the run that writes here |
| ``NAME``, ``training-2`` | of another training of the same process: a directory of the same kind |
| ``stage-2`` | of a later stage of the training, likewise |
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rankup.errors import RankupError
from rankup.snapshots import disk

LATEST = "latest"
LOCK = ".lock"
MANIFEST = "manifest.json"
SUMS = "SHA256SUMS"
VALUES = "values.pt"

_ENTRY = re.compile(r"step-(\d+)(?:-(\d+))?")
_DAMAGED = re.compile(r"(step-\d+(?:-\d+)?)\.damaged(?:-\d+)?")
_LEFTOVER = re.compile(r"step-.*\.tmp|latest\.tmp|\.node-.*")


def tensor_file(rank: int) -> str:
    return f"tensors-{rank}.bin"


def states_file(node: int) -> str:
    return f"states-{node}.bin"


def state_file(rank: int) -> str:
    """Only of a rank whose state is large."""
    return f"state-{rank}.pt"


def node_token(root: Path, number: int) -> Path:
    """The file by which nodes find out whether they see the same directory."""
    return root / f".node-{number}"


@dataclass(frozen=True, order=True)
class Entry:
    """A snapshot's directory by its name; sorts from old to new. ``attempt`` counts from 1."""

    step: int
    attempt: int
    path: Path = field(compare=False)

    @property
    def name(self) -> str:
        return self.path.name


def entry_name(step: int, attempt: int) -> str:
    return f"step-{step}" if attempt == 1 else f"step-{step}-{attempt}"


def entries(root: Path) -> list[Entry]:
    """Every snapshot below ``root``, the newest last; none if there is no such directory. Nothing is verified."""
    if not root.is_dir():
        return []
    named = [(match, path) for path in root.iterdir() if (match := _ENTRY.fullmatch(path.name))]
    return sorted(Entry(int(match[1]), int(match[2] or 1), path) for match, path in named if path.is_dir())


def trainings(root: Path) -> list[Path]:
    """``root`` and the directories below it that hold snapshots of other trainings or stages of the run."""
    inner = (
        sorted(path for path in root.iterdir() if path.is_dir() and not path.is_symlink())
        if root.is_dir()
        else []
    )
    nested = [path for path in inner if not path.name.startswith(("step-", "."))]
    return [root, *(deeper for path in nested for deeper in trainings(path))]


def damaged(root: Path) -> list[Path]:
    """The snapshots below ``root`` that ``set_aside`` has renamed."""
    return sorted(path for path in root.iterdir() if _DAMAGED.fullmatch(path.name)) if root.is_dir() else []


def set_aside(entry: Entry) -> Path:
    """Rename a damaged snapshot, so that it is not used. Returns its new path."""
    target, number = entry.path.with_name(f"{entry.name}.damaged"), 1
    while target.exists():
        number += 1
        target = entry.path.with_name(f"{entry.name}.damaged-{number}")
    disk.rename(entry.path, target)
    return target


def clear_leftovers(root: Path) -> None:
    """Remove what a killed run has left half written. The caller must hold the lock."""
    for path in list(root.iterdir()):
        if _LEFTOVER.fullmatch(path.name):
            with disk.explained(path):
                disk.remove(path)


def find_root(path: Path) -> Path:
    """The directory of snapshots that ``path`` means: itself, or ``snapshots`` of a run directory."""
    inner = path / "snapshots"
    root = inner if inner.is_dir() else path
    if not root.is_dir():
        raise RankupError(
            "no-such-directory",
            f"no such directory: {str(path)!r}",
            hint="use a run directory (runs/NAME/ID) or its snapshots directory",
        )
    return root


def find_entry(path: Path) -> Entry:
    """The snapshot that ``path`` means: itself, or the one saved last below a run or snapshots directory."""
    resolved = path.resolve()  # `latest` is a link
    if (match := _ENTRY.fullmatch(resolved.name)) and resolved.is_dir():
        return Entry(int(match[1]), int(match[2] or 1), resolved)
    if (path / MANIFEST).exists():
        return Entry(0, 1, path)  # moved or renamed by its user
    newest = [found[-1] for root in trainings(find_root(path)) if (found := entries(root))]
    if newest:
        return max(newest, key=lambda entry: entry.path.stat().st_mtime_ns)
    raise RankupError(
        "no-snapshot",
        f"no snapshot found in {str(path)!r}",
        hint="a snapshot is a directory step-N; `rankup snapshots list` lists those of a run",
        exit_code=1,
    )


@dataclass(frozen=True)
class Retention:
    """Which snapshots to keep: the ``last`` ones; the ``best`` ones by ``metric``, of which the smallest value
    (``mode="min"``) or the largest ("max") is best; and each whose step is a multiple of ``every``. 0 turns a rule off.
    A snapshot that no rule keeps is deleted. One whose metadata has ``"keep": true`` is kept, and no rule counts it."""

    last: int = 2
    best: int = 0
    every: int = 0
    metric: str = ""
    mode: Literal["min", "max"] = "min"

    def __post_init__(self) -> None:
        if self.last < 1 or self.best < 0 or self.every < 0 or (self.best > 0 and not self.metric):
            raise RankupError(
                "bad-retention",
                f"Retention(last={self.last}, best={self.best}, every={self.every}, metric={self.metric!r}) is invalid",
                hint="last must be at least 1, best and every at least 0; best requires the name of a metric",
            )
        if self.mode not in ("min", "max"):
            raise RankupError(
                "bad-retention", f"Retention(mode={self.mode!r}) is invalid", hint='mode="min" or mode="max"'
            )


KEEP = Retention()
