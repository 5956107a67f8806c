"""Which snapshot to resume from: the newest one that is good on every node."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankup.errors import RankupError
from rankup.snapshots.layout import Entry, set_aside
from rankup.snapshots.manifest import Damaged, Manifest, read_manifest, verify
from rankup.snapshots.snapshot import Snapshot
from rankup.world import World

if TYPE_CHECKING:
    from rankup.snapshots.peers import Peers

_NAMED = 3


def newest(
    root: Path,
    candidates: Collection[Entry],
    peers: Peers,
    shared: bool,
    wanted: Callable[[dict[str, Any]], bool],
) -> Snapshot | None:
    """The newest good one of ``candidates`` whose metadata is ``wanted``. A collective. ``latest`` is not read, since
    it may be out of date."""
    leads = peers.around(shared).leads
    wrong: list[str] = []
    damaged: list[Entry] = []
    for entry in sorted(candidates, reverse=True):
        path = root / entry.name
        if peers.union(lambda path=path: ["another"] if leads and not _is_wanted(path, wanted) else []):  # type: ignore[misc]
            continue
        manifest, problems = _examined(path, peers, shared)
        if manifest is not None:
            _set_aside(root, damaged, peers, leads)
            return Snapshot(path, manifest, peers.world)
        damaged.append(entry)
        wrong += [f"{entry.name}: {problem}" for problem in problems]
    if not damaged:
        return None
    more = f"; and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
    raise RankupError(
        "no-good-snapshot",
        f"every snapshot of this run is damaged: {'; '.join(wrong[:_NAMED])}{more}",
        context=str(root),
        hint="restore one from a backup, or move this directory away to start again",
        exit_code=1,
    )


def _is_wanted(path: Path, wanted: Callable[[dict[str, Any]], bool]) -> bool:
    """Also one that cannot be read: it is examined, and named."""
    try:
        return wanted(read_manifest(path).metadata)
    except (Damaged, OSError):
        return True


def _examined(path: Path, peers: Peers, shared: bool) -> tuple[Manifest | None, list[str]]:
    """The manifest, None if some rank found damage; and what the ranks found. A collective."""
    group = peers.around(shared)
    found: list[Manifest] = []

    def look() -> list[str]:
        try:
            found.append(verify(path, part=group.ranks.index(group.rank), parts=len(group.ranks)))
        except Damaged as damage:
            return [str(damage) if shared else f"{damage} (node {peers.world.node_rank})"]
        return []

    if problems := peers.union(look):
        return None, sorted(problems)
    peers.do(lambda: _check_node(path, found[0], peers.world))
    return found[0], []


def _check_node(path: Path, manifest: Manifest, world: World) -> None:
    """An error if this node's part of a snapshot is of no use here: a directory per node serves the same ranks on the
    same nodes, unless it holds every tensor completely."""
    if manifest.shared or (manifest.node, manifest.nodes, manifest.world_size) == (
        world.node_rank,
        world.num_nodes,
        world.world_size,
    ):
        return
    if manifest.complete and manifest.world_size != world.world_size:
        return
    raise RankupError(
        "scattered-snapshot",
        f"the snapshot was saved by {manifest.nodes} nodes, each to its own directory; "
        f"node {world.node_rank} of {world.num_nodes} found the part of node {manifest.node}",
        context=str(path),
        hint="resume on the same nodes in the same order, or save to a directory that all nodes share",
    )


def _set_aside(root: Path, refused: Sequence[Entry], peers: Peers, leads: bool) -> None:
    """Rename the newer snapshots that were refused, on all nodes: if one stayed on some nodes, the next save would find
    its name taken there. A directory that is not writable stays as it is: nothing will be saved there anyway."""

    def rename() -> None:
        for entry in refused if leads else ():
            with contextlib.suppress(OSError):
                if (root / entry.name).exists():
                    set_aside(Entry(entry.step, entry.attempt, root / entry.name))

    peers.do(rename)
