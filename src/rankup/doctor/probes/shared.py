"""The shared directory: whether it is one, how fast, how much room, and how soon others see a new file."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rankup.doctor.plan import Plan

SEEN_WITHIN = 2.5  # seconds in which a new file should be seen; NFS may take up to 60
_BYTES = 8 * 1024**2


def probe(plan: Plan, node: int) -> dict[str, Any]:
    folder = Path(plan.folder)
    facts: dict[str, Any] = {"folder": str(folder), **file_system(folder)}
    facts |= {"saw_mark": None, "unseen": [], "write_error": None}
    if not facts["exists"]:
        return facts
    ours = folder / plan.mark
    deadline = time.monotonic() + SEEN_WITHIN
    saw = _until((ours / "head").exists, ours.parent, deadline)
    facts["saw_mark"] = saw
    if saw:
        facts["mark_inode"] = _inode(ours / "head")
    # Where the mark is not seen, the folder may be another one: nothing is left there.
    target = ours if saw else folder
    own = target / f"{plan.mark}-{node}"
    try:
        # Twice, since one of them may meet the traffic of another program.
        facts["write_rate"] = max(_write(own), _write(own))
    except OSError as error:
        facts["write_error"] = errno.errorcode.get(error.errno or 0, "")
        return facts
    finally:
        if not saw:
            own.unlink(missing_ok=True)
    if saw and len(plan.hosts) > 1:
        # By rename, as snapshots and stop requests come.
        (target / f"{plan.mark}-{node}").rename(target / f"seen-{node}")
        facts["unseen"] = _unseen(target, len(plan.hosts), time.monotonic() + SEEN_WITHIN)
    return facts


def file_system(folder: Path) -> dict[str, Any]:
    """Kind, source, inode and room of the file system on which ``folder`` is."""
    facts: dict[str, Any] = {"exists": folder.is_dir(), "inode": None, "kind": "", "source": ""}
    if not facts["exists"]:
        return facts
    facts["inode"] = _inode(folder)
    stat = os.statvfs(folder)
    facts |= {"free": stat.f_bavail * stat.f_frsize, "files_free": stat.f_favail if stat.f_files else None}
    facts["read_only"] = bool(stat.f_flag & os.ST_RDONLY)
    facts["writable"] = os.access(folder, os.W_OK | os.X_OK)
    return facts | _mounted(folder)


def _mounted(folder: Path) -> dict[str, str]:
    """From the mount with the longest name above the folder: ``nfs4`` and ``server:/export``."""
    best, found = "", {"kind": "", "source": ""}
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        path = str(folder.resolve())
    except OSError:
        return found
    for line in lines:
        before, _, after = line.partition(" - ")
        point = before.split()[4].replace("\\040", " ")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best) and len(after.split()) > 1:
            best, found = point, {"kind": after.split()[0], "source": after.split()[1]}
    return found


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def _write(path: Path) -> float:
    """Bytes per second of one file, written and synced. Raises OSError."""
    block = os.urandom(1024**2)
    began = time.monotonic()
    with path.open("wb") as file:
        for _ in range(_BYTES // len(block)):
            file.write(block)
            if time.monotonic() - began > 1.0:  # slow: what came this far will do
                break
        size = file.tell()
        file.flush()
        os.fsync(file.fileno())
    rate = size / max(time.monotonic() - began, 1e-6)
    os.truncate(path, 0)
    return round(rate)


def _unseen(folder: Path, nodes: int, deadline: float) -> list[int]:
    """Nodes whose files are not seen here. That a node writes none has other reasons: the judge knows them."""
    missing = set(range(nodes))

    def all_there() -> bool:
        missing.intersection_update(node for node in list(missing) if not (folder / f"seen-{node}").exists())
        return not missing

    _until(all_there, folder, deadline)
    return sorted(missing)


def _until(there: Callable[[], bool], folder: Path, deadline: float) -> bool:
    while True:
        if there():
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
        try:
            os.listdir(folder)  # noqa: PTH208  # has an NFS client look again
        except OSError:
            continue
