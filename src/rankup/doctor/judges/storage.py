"""The shared directory. That a node does not see a new file has three reasons, told apart by what else it sees."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from rankup.doctor.facts import Facts, Part
from rankup.findings.finding import Confidence, Finding, Severity

_ROOM = 1024**3
_SLOW = 20e6  # bytes per second of one file, written and synced
_LOCAL = ("tmpfs", "ramfs", "overlay", "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "devtmpfs", "squashfs")
_FAILURES = {
    "EROFS": ("is read-only", "mount it read-write, or choose another directory: --dir"),
    "ENOSPC": ("is full", "remove files there, or choose another directory: --dir"),
    "EDQUOT": ("has no room left in your quota", "remove files (quota -s tells), or choose another: --dir"),
    "EACCES": ("is not writable for you", "choose a directory that you may write to: --dir"),
    "EPERM": ("is not writable for you", "choose a directory that you may write to: --dir"),
}


def judge(facts: Facts) -> Iterator[Finding]:
    parts = {node: part for node, part in facts.parts("shared").items() if "folder" in part}
    if not parts:
        return
    folder = next(iter(parts.values()))["folder"]
    if absent := [node for node, part in parts.items() if not part["exists"]]:
        yield Finding(
            "directory-missing",
            Severity.ERROR,
            f"{folder} does not exist on {facts.named(absent)}",
            place=facts.named(absent),
            why="the directory is not shared, or not mounted there",
            fix="choose one that all nodes share: --dir",
        )
    there = {node: part for node, part in parts.items() if part["exists"]}
    apart = _not_shared(facts, there)
    if apart:
        kinds = sorted({part["kind"] for node, part in there.items() if node in apart and part["kind"]})
        yield Finding(
            "directory-not-shared",
            Severity.ERROR,
            f"{folder} on {facts.named(apart)} is another directory than on {facts.host(_head(there, apart))}",
            place=facts.named(apart),
            why=f"files of one node are not seen on others{f' (file system there: {kinds[0]})' if kinds else ''}",
            fix="choose a directory that all nodes share: --dir (rankup run: --runs-root)",
        )
    yield from _write_errors(facts, folder, there)
    yield from _slow_to_show(facts, folder, {n: part for n, part in there.items() if n not in apart})
    yield from _room(facts, folder, there)


def _head(there: dict[int, Part], apart: list[int]) -> int:
    return next((node for node in there if node not in apart), 0)


def _not_shared(facts: Facts, there: dict[int, Part]) -> list[int]:
    """Nodes whose folder is another one: they did not see the mark, and it is not only late.

    A file system of the network with the same source and the same inode is the same folder, seen late.
    """
    seen = [node for node, part in there.items() if part.get("saw_mark")]
    blind = [node for node, part in there.items() if part.get("saw_mark") is False]
    if len(facts.hosts) < 2 and not blind:
        return []
    model = there[seen[0]] if seen else None
    if model is None:
        # Nobody saw it: the machine that made it may not share the folder with the nodes; they still may.
        inodes = {part.get("inode") for part in there.values()}
        return [] if len(inodes) == 1 and len(there) > 1 else (blind if len(there) > 1 else [])
    return [node for node in blind if not _same(model, there[node])]


def _same(one: Part, other: Part) -> bool:
    keys = ("inode", "source", "kind")
    return all(one.get(key) == other.get(key) for key in keys) and other.get("kind") not in _LOCAL


def _write_errors(facts: Facts, folder: str, there: dict[int, Part]) -> Iterator[Finding]:
    by_error: dict[str, list[int]] = {}
    for node, part in there.items():
        if part.get("write_error"):
            by_error.setdefault(part["write_error"], []).append(node)
    for error, nodes in by_error.items():
        what, fix = _FAILURES.get(error, (f"cannot be written ({error})", "choose another directory: --dir"))
        yield Finding(
            "directory-full" if error in ("ENOSPC", "EDQUOT") else "directory-not-writable",
            # A machine alone may run in another directory.
            Severity.ERROR if len(facts.hosts) > 1 else Severity.WARNING,
            f"{folder} {what} on {facts.named(nodes)}",
            place=facts.named(nodes),
            why="records, logs and snapshots cannot be written",
            fix=fix,
        )


def _slow_to_show(facts: Facts, folder: str, there: dict[int, Part]) -> Iterator[Finding]:
    """Files of others that a node did not see in time. A node that wrote nothing is not waited for."""
    wrote = {
        node for node, part in there.items() if part.get("saw_mark") and part.get("write_rate") is not None
    }
    if not any(part.get("saw_mark") for part in there.values()):
        return  # it could not be made
    late = [
        node
        for node, part in there.items()
        if part.get("saw_mark") is False or set(part.get("unseen", ())) & wrote - {node}
    ]
    if late:
        kind = next((there[node]["kind"] for node in late if there[node]["kind"]), "")
        yield Finding(
            "directory-slow",
            Severity.NOTE,
            f"new files in {folder} are not seen on {facts.named(late)} within some seconds",
            place=facts.named(late),
            why=f"{kind or 'the file system'} keeps directories in a cache, up to 60 s with NFS: a file that is not "
            "seen does not mean that a rank is missing",
            fix="wait longer for files, or let ranks talk by the network; rankup does both",
        )


def _room(facts: Facts, folder: str, there: dict[int, Part]) -> Iterator[Finding]:
    ok = {node: part for node, part in there.items() if not part.get("write_error")}
    small = [node for node, part in ok.items() if 0 <= part.get("free", _ROOM) < _ROOM]
    if small:
        free = min(ok[node]["free"] for node in small)
        yield Finding(
            "little-room",
            Severity.WARNING,
            f"{folder} has {free / 1024**2:,.0f} MiB left",
            place=facts.named(small),
            why="a snapshot of a large model does not fit",
            fix="remove files, or choose another directory: --dir",
        )
    rates = {node: part["write_rate"] for node, part in ok.items() if part.get("write_rate")}
    slow = [node for node, rate in rates.items() if rate < _SLOW]
    if slow:
        least = min(rates[node] for node in slow)
        usual = statistics.median(rates.values())
        yield Finding(
            "directory-slow-writes",
            Severity.NOTE,
            f"{facts.named(slow)} wrote to {folder} at {least / 1e6:.1f} MB/s (median of all: {usual / 1e6:.1f} MB/s)",
            place=facts.named(slow),
            why="snapshots will take long",
            fix="choose a faster directory: --dir",
            confidence=Confidence.LIKELY,
        )
