"""One snapshot, from copies in memory to a durable directory.

    make step-N.tmp/ → agree who writes what → each rank its files, fsync each → gather sizes and hashes →
    manifest and sums, fsync → fsync the directory → rename to step-N → fsync the parent → move `latest` → prune

Killed at any point it leaves the earlier snapshots as they were, and a ``.tmp`` or a whole new one.
"""

from __future__ import annotations

import contextlib
import io
import json
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rankup.errors import RankupError
from rankup.snapshots import disk
from rankup.snapshots.checksum import checksum
from rankup.snapshots.layout import (
    LATEST,
    MANIFEST,
    SUMS,
    VALUES,
    entries,
    entry_name,
    rank_file,
    tensor_file,
)
from rankup.snapshots.manifest import FORMAT, Chunk, Manifest, SavedTensor, sums_text
from rankup.snapshots.peers import Peers
from rankup.snapshots.prune import Retention, prune
from rankup.snapshots.shards import Part, as_bytes, divide, place
from rankup.snapshots.staging import Staged
from rankup.world import World


@dataclass(frozen=True)
class _Offer:
    """What a rank has to save, sent to all ranks: parts and plain values by name."""

    node: int
    attempts: int  # how often the step was saved already
    parts: dict[str, Part]
    values: dict[str, Any]
    must_match: dict[str, str]
    sums: dict[str, str]  # name → checksum, which must be equal on all ranks that hold the same part


@dataclass(frozen=True)
class _Written:
    """The files of a rank: name → (bytes, SHA-256), and where the part of each tensor is."""

    files: dict[str, tuple[int, str]]
    chunks: dict[str, Chunk]


def write(root: Path, step: int, staged: Staged, peers: Peers, *, shared: bool, keep: Retention) -> None:
    """Write ``staged`` as the newest snapshot of ``step``. A collective; an error on one rank is raised on all."""
    world, leads = peers.world, peers.leads(shared)
    folder = root / f"step-{step}.tmp"

    def begin() -> _Offer:
        staged.finish()
        attempts = 0
        if leads:
            attempts = max((entry.attempt for entry in entries(root) if entry.step == step), default=0)
            with disk.explained(folder):
                disk.make_folder(folder)
        sums = {
            name: checksum(data)
            for name, data in staged.data.items()
            if world.world_size > 1 and name not in staged.may_differ
        }
        return _Offer(world.node_rank, attempts, staged.parts, staged.values, staged.must_match, sums)

    try:
        offers = peers.gather_or_raise(begin)
        name = entry_name(step, 1 + max(offer.attempts for offer in offers))
        here = {rank: offer for rank, offer in enumerate(offers) if shared or offer.node == world.node_rank}

        def write_files() -> _Written:
            _check_alike(offers)
            _check_replicas(offers, step)
            # Here, within gather_or_raise: an error of one node is raised on all.
            names = divide({rank: offer.parts for rank, offer in here.items()}, whole=shared)[world.rank]
            return _write_files(folder, staged, names, _united(here) if leads else None, world.rank)

        written = peers.gather_or_raise(write_files)

        def commit() -> None:
            if leads:
                files = [written[rank] for rank in here]
                with disk.explained(root):
                    _commit(folder, name, _manifest(step, staged, world, shared, here, files), files)
                    prune(root, keep)

        peers.gather_or_raise(commit)
    except BaseException:
        if leads:
            with contextlib.suppress(OSError):  # the first error is the one to report
                disk.remove(folder)
        raise


def _united(offers: Mapping[int, _Offer]) -> dict[str, Any]:
    """The plain values of all ranks. Raises RankupError if two ranks disagree."""
    values: dict[str, Any] = {}
    for rank, offer in offers.items():
        for name, value in offer.values.items():
            if repr(values.setdefault(name, value)) != repr(value):  # a NaN is not equal to itself
                raise RankupError(
                    "ranks-differ",
                    f"{name} is {value!r} on rank {rank}, {values[name]!r} on another",
                    hint="a rank has set it by a number of its own, such as a loss of its share of the test data: give "
                    "all ranks the same one before the schedule's step, by run.meter.means(), run.mean or run.sum"
                    if "/optimizer/" in name
                    else "values that differ between ranks must be saved per rank",
                    exit_code=1,
                )
    return values


def _check_alike(offers: Sequence[_Offer]) -> None:
    """Raises RankupError if the ranks' registered things differ: only one rank's would be saved."""
    if (error := registered_differ([offer.must_match for offer in offers])) is not None:
        raise error


def registered_differ(everyone: Sequence[Mapping[str, str]]) -> RankupError | None:
    """The error for the first registered thing whose text is not the same on all ranks; None without one."""
    for name, first in everyone[0].items():
        for rank, texts in enumerate(everyone):
            if (other := texts.get(name)) == first:
                continue
            shown = "" if first.startswith("sha256:") or other is None else f": {first} and {other}"
            return RankupError(
                "ranks-differ",
                f"{name} (run.register) differs between rank 0 and rank {rank}{shown}",
                hint="compute it from values of all ranks (run.mean, run.sum, run.gather); prepare a module that is "
                "trained, run.prepare([model, module], …); or save each rank's own: "
                f"run.register({name}=…, per_rank=True)",
                exit_code=1,
            )
    return None


def _check_replicas(offers: Sequence[_Offer], step: int) -> None:
    """Raises RankupError if ranks hold different values of the same part: the snapshot would be a mixture."""
    known: dict[tuple[str, Part], tuple[int, str]] = {}
    for rank, offer in enumerate(offers):
        for name, mine in offer.sums.items():
            first, other = known.setdefault((name, offer.parts[name]), (rank, mine))
            if mine != other:
                raise RankupError(
                    "replicas-differ",
                    f"{name} differs between rank {first} and rank {rank}: the snapshot of step {step} is not "
                    "written; earlier snapshots are kept",
                    hint="the ranks have trained different models: call the model that prepare returned, in every "
                    "step; make the same manual changes to weights on all ranks",
                    exit_code=1,
                )


def _write_files(
    folder: Path, staged: Staged, names: list[str], values: dict[str, Any] | None, rank: int
) -> _Written:
    """This rank's files: its share of the tensors, its own state, and on a leading rank the ``values``."""
    plain = {rank_file(rank): staged.rank_state, **({} if values is None else {VALUES: values})}
    with disk.explained(folder):
        files = {name: disk.write_file(folder / name, [_pickled(content)]) for name, content in plain.items()}
        file = tensor_file(rank)
        chunks, paddings = place({name: staged.parts[name] for name in names}, file)
        if chunks:
            pieces: list[bytes | memoryview] = []
            for name, padding in zip(names, paddings, strict=True):
                pieces += [bytes(padding), as_bytes(staged.data[name])]
            files[file] = disk.write_file(folder / file, pieces)
    return _Written(files, chunks)


def _pickled(value: dict[str, Any]) -> memoryview:
    out = io.BytesIO()
    torch.save(value, out)
    return out.getbuffer()


def _manifest(
    step: int,
    staged: Staged,
    world: World,
    shared: bool,
    here: Mapping[int, _Offer],
    written: Sequence[_Written],
) -> Manifest:
    tensors = {}
    parts = {name: part for offer in here.values() for name, part in offer.parts.items()}
    for name, part in sorted(parts.items()):
        chunks = [rank.chunks[name] for rank in written if name in rank.chunks]
        tensors[name] = SavedTensor(part.dtype, part.shape, tuple(sorted(chunks, key=lambda c: c.offsets)))
    return Manifest(
        format=FORMAT,
        step=step,
        saved=round(time.time(), 3),
        world_size=world.world_size,
        shared=shared,
        node=0 if shared else world.node_rank,
        nodes=world.num_nodes,
        versions={"torch": torch.__version__, "python": platform.python_version()},
        metadata=json.loads(staged.metadata),
        tensors=tensors,
        files={name: size for rank in written for name, (size, _) in rank.files.items()},
    )


def _commit(folder: Path, name: str, manifest: Manifest, written: Sequence[_Written]) -> None:
    """Make a directory of durable files a snapshot: manifest and sums, then the rename."""
    sums = {file: digest for rank in written for file, (_, digest) in rank.files.items()}
    _, sums[MANIFEST] = disk.write_file(folder / MANIFEST, [manifest.text().encode()])
    disk.write_file(folder / SUMS, [sums_text(sums).encode()])
    disk.sync_folder(folder)
    disk.rename(folder, folder.with_name(name))
    disk.sync_folder(folder.parent)
    disk.update_symlink(folder.with_name(LATEST), name)
