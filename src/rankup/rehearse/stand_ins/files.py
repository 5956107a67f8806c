"""Commands that change files. In the sandbox they are the real ones, and only large copies are left out, since the copy
lies in memory. Without a sandbox they work below the copy of the job's folder alone."""

from __future__ import annotations

import os
from pathlib import Path

from rankup.rehearse.stand_ins.context import Here

COPY_TOOLS = ("cp", "rsync", "tar", "unzip", "dd", "unsquashfs", "untar", "zstd", "gunzip", "unxz")
CHANGE_TOOLS = ("rm", "mv", "mkdir", "rmdir", "touch", "ln", "chmod", "chown", "chgrp", "truncate", "install",
"tee", "shred",
                "find", "sed", "mktemp", "split", "rename")  # fmt: skip
_LARGEST = 64 << 20


def main(here: Here) -> int:  # noqa: RET503 # the last line does not return
    line = " ".join([here.name, *here.args])[:200]
    if here.name == "rsync" and any(
        ":" in word.split("/")[0] for word in here.args if not word.startswith("-")
    ):
        here.note(f"{line}: copies over the network; noted, not done")
        return 0
    if here.name in COPY_TOOLS:
        size = sum(_size(path) for path in _paths(here)[: -1 if here.name in ("cp", "rsync") else None])
        if size > _LARGEST:
            here.note(f"{line}: {size >> 20} MiB are too much to copy in a rehearsal; noted, not done")
            return 0
    if not here.scenario.confined and not _only_looks(here):
        paths = _paths(here)
        # What is only read may lie elsewhere: of a copy, all but the last.
        changed = paths[-1:] if here.name in ("cp", "rsync", "ln", "install") else paths
        if any(not _is_inside(path, here) for path in changed):
            here.note(f"{line}: outside of the job's folder; noted, not done", "outside")
            return 0
    if here.real(here.name) is None:
        here.note(f"{here.name} is not on this machine", "unknown")
        return 0
    here.run_real(here.name)


def _only_looks(here: Here) -> bool:
    if here.name == "find":
        return not {"-delete", "-exec", "-execdir", "-fprint", "-ok"} & {*here.args}
    if here.name == "sed":
        return not any(word.startswith(("-i", "--in-place")) for word in here.args)
    return here.name == "mktemp"


def _paths(here: Here) -> list[Path]:
    words = [word.partition("=")[2] if here.name == "dd" else word for word in here.args]
    return [Path(here.cwd, word) for word in words if word and not word.startswith("-")]


def _is_inside(path: Path, here: Here) -> bool:
    real = Path(os.path.realpath(path))
    return any(
        real.is_relative_to(folder)
        for folder in (here.scenario.scratch, Path(os.path.realpath(here.scenario.folder)))
    )


def _size(path: Path, most: int = _LARGEST) -> int:
    """Bytes of a file, or of all files below a folder; it stops counting above ``most``."""
    try:
        if not path.is_dir():
            return path.stat().st_size
        total = 0
        for number, (folder, _, files) in enumerate(os.walk(path)):
            total += sum(os.lstat(Path(folder, name)).st_size for name in files)
            if total > most or number > 5000:
                return max(total, most + 1)
        return total
    except OSError:
        return 0
