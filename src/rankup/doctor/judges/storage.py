"""The shared directory. That a node does not see a new file has three reasons, told apart by what else it sees."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from rankup.doctor.facts import Facts, Part
from rankup.doctor.judges.findings import finding
from rankup.findings.finding import Finding, Severity

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
        yield finding("directory-missing", facts.named(absent), folder=folder)
    there = {node: part for node, part in parts.items() if part["exists"]}
    apart = _not_shared(facts, there)
    if apart:
        kinds = sorted({part["kind"] for node, part in there.items() if node in apart and part["kind"]})
        yield finding(
            "directory-not-shared",
            facts.named(apart),
            folder=folder,
            other=facts.host(_head(there, apart)),
            kinds=f" (file system there: {kinds[0]})" if kinds else "",
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
        yield finding(
            "directory-full" if error in ("ENOSPC", "EDQUOT") else "directory-not-writable",
            facts.named(nodes),
            # A machine alone may run in another directory.
            severity=Severity.ERROR if len(facts.hosts) > 1 else Severity.WARNING,
            folder=folder,
            what=what,
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
        yield finding("directory-slow", facts.named(late), folder=folder, kind=kind or "the file system")


def _room(facts: Facts, folder: str, there: dict[int, Part]) -> Iterator[Finding]:
    ok = {node: part for node, part in there.items() if not part.get("write_error")}
    room = finding.limits["little-room"]["free"]
    small = [node for node, part in ok.items() if 0 <= part.get("free", room) < room]
    if small:
        free = min(ok[node]["free"] for node in small)
        yield finding("little-room", facts.named(small), folder=folder, free=free / 1024**2)
    rates = {node: part["write_rate"] for node, part in ok.items() if part.get("write_rate")}
    slow = [node for node, rate in rates.items() if rate < finding.limits["directory-slow-writes"]["rate"]]
    if slow:
        least = min(rates[node] for node in slow)
        usual = statistics.median(rates.values())
        yield finding(
            "directory-slow-writes", facts.named(slow), folder=folder, least=least / 1e6, usual=usual / 1e6
        )
