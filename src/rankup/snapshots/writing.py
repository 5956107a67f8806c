"""One snapshot, from copies in memory to a durable directory.

    make step-N.tmp/ → each rank its files, fsync each → compare what several ranks hold
    → tell sizes and hashes → values, manifest and sums, fsync → fsync the directory → rename to step-N → fsync the
    parent → move `latest` → prune

Killed at any point it leaves the earlier snapshots as they were, and a ``.tmp`` or a whole new one.
"""

from __future__ import annotations

import contextlib
import io
import json
import operator
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from rankup.snapshots import alike, disk
from rankup.snapshots.alike import Held
from rankup.snapshots.layout import (
    LATEST,
    MANIFEST,
    SUMS,
    VALUES,
    Retention,
    entries,
    entry_name,
    state_file,
    states_file,
    tensor_file,
)
from rankup.snapshots.manifest import FORMAT, Manifest, SavedState, SavedTensor, sums_text
from rankup.snapshots.peers import Peers, total
from rankup.snapshots.plan import Layout, Plan, make_plan, united
from rankup.snapshots.prune import prune
from rankup.snapshots.shards import offsets, padded
from rankup.snapshots.state import Staged
from rankup.snapshots.tensor_checksum import as_bytes, checksum, reduced

LARGE = 1 << 20  # bytes: a state of a rank from here on is a file of its own, which its rank writes


@dataclass
class _Written:
    """What a rank tells the leading one. ``files``: name → (bytes, SHA-256). ``tensors``: if the plan is new."""

    files: dict[str, tuple[int, str]] = field(default_factory=dict)
    states: dict[int, SavedState] = field(default_factory=dict)
    tensors: dict[str, SavedTensor] | None = None
    values: dict[str, Any] = field(default_factory=dict)

    def write(self, folder: Path, file: str, pieces: Sequence[bytes | memoryview]) -> None:
        self.files[file] = disk.write_file(folder / file, pieces)


class Writer:
    """Writes the snapshots of one directory, and remembers the plan from one to the next."""

    def __init__(self, root: Path, peers: Peers, *, shared: bool, keep: Retention) -> None:
        self._root = root
        self._peers = peers
        self._shared = shared
        self._keep = keep
        self._group = peers.around(shared)
        self._plan: Plan | None = None
        self._told: Plan | None = None  # of the last snapshot
        self._tensors: dict[
            str, SavedTensor
        ] = {}  # on the leading rank: of all ranks, by the plan that was told
        self._known: dict[str, dict[str, Any]] = {}  # there: metadata of snapshots, by name

    def plan(self, layout: Layout) -> Plan:
        """Who writes what: as before, while no rank has another ``layout`` than before. A collective."""
        plan = self._plan
        changed = plan is None or plan.layout != layout
        if self._peers.agree(lambda: changed, operator.or_) or plan is None:
            plan = self._plan = make_plan(layout, self._peers, shared=self._shared)
        return plan

    def write(self, step: int, staged: Staged) -> None:
        """Write ``staged`` as the newest snapshot of ``step``. A collective; an error on one rank is raised on all."""
        folder = self._root / f"step-{step}.tmp"
        new, self._told = staged.plan is not self._told, None  # after an error the next save tells it anew
        try:
            self._written(step, staged, folder, new)
            self._told = staged.plan
        except BaseException:
            if self._group.leads:
                with contextlib.suppress(OSError):  # the first error is the one to report
                    disk.remove(folder)
            raise

    def _written(self, step: int, staged: Staged, folder: Path, new: bool) -> None:
        peers, group, plan = self._peers, self._group, staged.plan
        state = memoryview(b"")

        def begin() -> int:
            nonlocal state
            staged.finish()
            state = _pickled(staged.rank_state)
            attempts = 0
            if group.leads:
                attempts = max(
                    (entry.attempt for entry in entries(self._root) if entry.step == step), default=0
                )
                with disk.explained(folder):
                    disk.make_folder(folder)
            return attempts

        attempts = peers.agree(begin, max)
        small = peers.node.collect(bytes(state) if len(state) < LARGE else None)
        written = _Written(
            tensors=plan.tensors if new else None, values={name: staged.values[name] for name in plan.values}
        )
        held: list[Held] = []

        def write_files() -> list[int]:
            held.extend(_held(staged, peers))
            with disk.explained(folder):
                self._write_files(folder, staged, written, state, small)
            return alike.summands(held, peers.world.rank)

        alike.check(peers.agree(write_files, total), held, peers, step)
        told = group.collect(written if written.files or written.tensors or written.values else None)

        def commit() -> None:
            if group.leads:
                if new:
                    tensors = [(rank, each.tensors) for rank, each in told if each.tensors is not None]
                    self._tensors = united(tensors, plan.layout.parts, whole=self._shared)
                with disk.explained(self._root):
                    self._commit(folder, step, 1 + attempts, staged, [each for _, each in told])
                    prune(self._root, self._keep, self._known)

        peers.do(commit)

    def _write_files(
        self,
        folder: Path,
        staged: Staged,
        written: _Written,
        state: memoryview,
        small: Sequence[tuple[int, bytes]],
    ) -> None:
        """This rank's share of the tensors, its state if it is large, and the ``small`` states of its node."""
        rank, node = self._peers.world.rank, self._peers.world.node_rank
        if chunks := staged.plan.chunks:
            written.write(folder, tensor_file(rank), padded(as_bytes(staged.data[name]) for name in chunks))
        if len(state) >= LARGE:
            written.write(folder, state_file(rank), [state])
            written.states[rank] = SavedState(state_file(rank), 0, len(state))
        if small:
            written.write(folder, states_file(node), padded(each for _, each in small))
            for (other, each), at in zip(small, offsets(len(each) for _, each in small), strict=True):
                written.states[other] = SavedState(states_file(node), at, len(each))

    def _commit(
        self, folder: Path, step: int, attempt: int, staged: Staged, told: Sequence[_Written]
    ) -> None:
        """Make a directory of durable files a snapshot: values, manifest and sums, then the rename."""
        world, last = self._peers.world, _Written()
        values = dict(staged.values)
        for each in told:
            values |= each.values
        last.write(folder, VALUES, [_pickled(values)])
        told = [*told, last]
        files = {name: of for each in told for name, of in each.files.items()}
        manifest = Manifest(
            format=FORMAT,
            step=step,
            saved=round(time.time(), 3),
            world_size=world.world_size,
            shared=self._shared,
            node=0 if self._shared else world.node_rank,
            nodes=world.num_nodes,
            versions={"torch": torch.__version__, "python": platform.python_version()},
            metadata=json.loads(staged.metadata),
            tensors=self._tensors,
            states={rank: saved for each in told for rank, saved in each.states.items()},
            files={name: size for name, (size, _) in files.items()},
        )
        sums = {name: digest for name, (_, digest) in files.items()}
        _, sums[MANIFEST] = disk.write_file(folder / MANIFEST, [manifest.text().encode()])
        disk.write_file(folder / SUMS, [sums_text(sums).encode()])
        name = entry_name(step, attempt)
        disk.sync_folder(folder)
        disk.rename(folder, folder.with_name(name))
        disk.sync_folder(folder.parent)
        self._known[name] = manifest.metadata
        disk.update_symlink(folder.with_name(LATEST), name)


def _held(staged: Staged, peers: Peers) -> list[Held]:
    """What this rank has in common with others, and must be the same there."""
    everyone, plan = peers.everyone.ranks, staged.plan
    if len(everyone) == 1:
        return []
    held = [Held(alike.REGISTERED, name, None, text, everyone) for name, text in staged.must_match.items()]
    for name in staged.compared:
        ranks = plan.holders[name]
        if (part := plan.layout.parts.get(name)) is None:
            # Its text: a NaN is not equal to itself.
            held.append(Held(alike.VALUE, name, None, repr(staged.values[name]), ranks))
        else:
            sums = staged.sums[name] if name in staged.sums else reduced(staged.data[name])
            held.append(Held(alike.TENSOR, name, part, checksum(sums), ranks))
    return held


def _pickled(value: dict[str, Any]) -> memoryview:
    out = io.BytesIO()
    torch.save(value, out)
    return out.getbuffer()
