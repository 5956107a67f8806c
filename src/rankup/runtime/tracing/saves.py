"""The saves that a script makes by itself, and the interruption in the middle of one.

A save is a call of ``torch.save`` or of safetensors, a new file of h5py, or a file that the script writes from its
beginning and that may hold the weights, by its size. Nobody tells when a file is complete. So a save is done at the
next thing that the script does: another change on disk, a batch, a step, a collective. Until then nothing has followed
it. A file that is cut to its first half at that time is what a kill in the middle of the writing leaves: the same
bytes, and nothing that comes after them. A save may have several files: then a kill before the last of them changes
leaves new ones beside an old one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


class Saves:
    """Of one process."""

    def __init__(self) -> None:
        self.made: list[tuple[str, int]] = []  # since the step before: names and bytes
        self.least = 1  # bytes of a file that may hold the weights
        # Since the step before, what was about to happen: a path that is written anew, or renamed from one to another.
        self.changes: list[tuple[str, ...]] = []
        self._open, self._called = "", False
        self._wanted = self._last = 0
        self._interrupt: Callable[[], None] = lambda: None

    def interrupt(self, number: int, freeze: Callable[[], None]) -> None:
        """Cut the save of this number from now on, and ``freeze``."""
        if not self._wanted:
            self._wanted, self._interrupt = len(self.made) + number, freeze

    def stop_before(self, number: int, freeze: Callable[[], None]) -> None:
        """``freeze`` before the change of this number from now on."""
        if not self._last:
            self._last, self._interrupt = len(self.changes) + number, freeze

    def _changes(self, *paths: str) -> None:
        self.changes.append(paths)
        if len(self.changes) == self._last:
            self._interrupt()

    def renames(self, old: str, new: str) -> None:
        """``old`` is about to become ``new``."""
        self.settles()
        self._changes(old, new)

    def begins(self, path: str, *, called: bool = False) -> None:
        """``path`` is about to be written; ``called``: by a function that saves."""
        if path == self._open:
            return  # torch.save opens its file
        self.settles()
        self._changes(path)
        self._open, self._called = path, called

    def called(self) -> None:
        """A function that saves was called with no path: its file is open, or it writes to memory."""
        self._called = True
        if not self._open:
            self.made.append(("", 0))

    def settles(self) -> None:
        """The script does something else."""
        if not self._open:
            return
        path, self._open = Path(self._open), ""
        size = 0
        with suppress(OSError):
            size = path.stat().st_size
        if not self._called and size < self.least:
            return
        self.made.append((path.name, size))
        if self._wanted and len(self.made) >= self._wanted and size > 1:
            os.truncate(path, size // 2)
            self._interrupt()

    def since_step(self) -> dict[str, object]:
        """The fields of a record; then it begins anew."""
        self.settles()
        made, self.made = self.made, []
        changes, self.changes = self.changes, []
        if self._wanted:
            self._wanted = max(1, self._wanted - len(made))
        if self._last:
            self._last = max(1, self._last - len(changes))
        return {"saved": len(made), "saves": made, "changes": changes if made else []}


SAVES = Saves()
