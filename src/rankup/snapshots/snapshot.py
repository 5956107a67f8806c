"""A snapshot that was verified: its metadata, and how its content is loaded into a live run."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rankup.errors import RankupError
from rankup.snapshots.layout import VALUES
from rankup.snapshots.manifest import Manifest
from rankup.snapshots.shards import read_into
from rankup.snapshots.state import leaves, split
from rankup.world import World

_NAMED = 3  # how many names an error gives before it says how many more there are


@dataclass(frozen=True)
class Snapshot:
    """Made by ``Saver.newest``. Loading is not a collective: each rank reads the parts that it needs."""

    path: Path
    manifest: Manifest
    world: World

    @property
    def step(self) -> int:
        return self.manifest.step

    @property
    def world_size(self) -> int:
        """Of the run that saved it."""
        return self.manifest.world_size

    @property
    def metadata(self) -> dict[str, Any]:
        """``SnapshotState.metadata``, as it was saved."""
        return self.manifest.metadata

    def load_tensors(self, into: dict[str, Any], *, partial: bool = False) -> None:
        """Fill ``into``, which has the structure of ``SnapshotState.tensors``: tensors and DTensors in place, in any
        sharding, without a change of dtype; other values are set in the dicts and lists that hold them. ``partial``:
        this rank holds only some of the state's names, as a stage of a pipeline does.

        Raises RankupError ``other-model``, before anything is changed, if names, shapes or dtypes differ.
        """
        live, _ = split(into)
        values = load_plain(self.path / VALUES)
        names = {name for name, _, _ in leaves(into)} - live.keys()
        self._compare(live, names, values, partial)
        with torch.no_grad():
            for name, tensor in live.items():
                read_into(tensor, self.manifest.tensors[name], self.path, name)
        for name, holder, key in leaves(into):
            if name not in live:
                holder[key] = values[name]

    def outline(self) -> dict[str, Any]:
        """The saved ``SnapshotState.tensors`` as nested dicts, with tensors on ``meta``: names and shapes, no bytes."""
        tree: dict[str, Any] = {}
        meta = {
            name: torch.empty(saved.shape, dtype=getattr(torch, saved.dtype), device="meta")
            for name, saved in self.manifest.tensors.items()
        }
        for name, value in {**meta, **load_plain(self.path / VALUES)}.items():
            *parents, last = name.split("/")
            inner = tree
            for parent in parents:
                inner = inner.setdefault(parent, {})
            inner[last] = value
        return tree

    def first_rank_state(self) -> dict[str, Any]:
        """The ``rank_state`` of the first rank whose part is in this directory."""
        return self._state(min(self.manifest.states))

    def adopted_rank_states(self) -> list[dict[str, Any]]:
        """If another number of ranks saved it: the ``rank_state`` of each old rank that this one takes over. The ranks
        divide them; with a directory per node, those of the node do."""
        world = self.world
        part, parts = (
            (world.rank, world.world_size)
            if self.manifest.shared
            else (world.local_rank, world.local_world_size)
        )
        return [self._state(rank) for rank in sorted(self.manifest.states)[part::parts]]

    def rank_state(self) -> dict[str, Any] | None:
        """The ``rank_state`` of this rank; None if the run that saved it had another number of ranks."""
        return self._state(self.world.rank) if self.world.world_size == self.world_size else None

    def _state(self, rank: int) -> dict[str, Any]:
        return load_rank_state(self.path, self.manifest, rank)

    def _compare(
        self, live: dict[str, torch.Tensor], names: set[str], values: dict[str, Any], partial: bool
    ) -> None:
        saved = self.manifest.tensors
        missing = (live.keys() - saved.keys()) | (names - values.keys())
        surplus = set() if partial else (saved.keys() - live.keys()) | (values.keys() - names)
        wrong = [f"{name} is not in the snapshot" for name in missing]
        wrong += [f"{name} is not in this run" for name in surplus]
        for name in live.keys() & saved.keys():
            mine = (str(live[name].dtype).removeprefix("torch."), tuple(live[name].shape))
            theirs = (saved[name].dtype, saved[name].shape)
            if mine != theirs:
                wrong.append(f"{name} is {_typed(theirs)} in the snapshot, {_typed(mine)} in this run")
        if wrong:
            more = f"; and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
            raise RankupError(
                "other-model",
                f"the snapshot does not match the model or optimizer: {'; '.join(sorted(wrong)[:_NAMED])}{more}",
                context=f"{self.path} (torch {self.manifest.versions.get('torch')}; here {torch.__version__})",
                hint="use the saved model and optimizer, or start a new run in another directory",
            )


def load_rank_state(path: Path, manifest: Manifest, rank: int) -> dict[str, Any]:
    """What a rank saved of its own, from the snapshot's folder ``path``."""
    saved = manifest.states[rank]
    if saved.size == manifest.files[saved.file]:
        return load_plain(path / saved.file)
    with (path / saved.file).open("rb") as file:
        file.seek(saved.at)
        return load_plain(path / saved.file, io.BytesIO(file.read(saved.size)))


def load_plain(path: Path, part: io.BytesIO | None = None) -> dict[str, Any]:
    """What ``torch.save`` wrote to a file, or to a ``part`` of it, read without running code that it may contain."""
    try:
        loaded: dict[str, Any] = torch.load(part or path, map_location="cpu", weights_only=True)
    except Exception as error:  # UnpicklingError, and what a zip file can lack
        raise RankupError(
            "unsafe-snapshot",
            f"{path.name} contains more than tensors and plain values, and was not loaded: it could run code",
            context=f"{path}: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
            hint="use a snapshot from a trusted source, or start without one",
        ) from error
    return loaded


def _typed(kind: tuple[str, tuple[int, ...]]) -> str:
    return f"{kind[0]}{list(kind[1])}"
