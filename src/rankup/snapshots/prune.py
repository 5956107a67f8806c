"""Which snapshots to keep once a new one is durable."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from rankup.errors import RankupError
from rankup.snapshots import disk
from rankup.snapshots.layout import Entry, Retention, entries
from rankup.snapshots.manifest import Damaged, read_manifest


def prune(root: Path, keep: Retention, known: dict[str, dict[str, Any]]) -> None:
    """Delete what ``keep`` does not keep, oldest first. A damaged one that was renamed is never deleted. ``known``: the
    metadata of snapshots by name. What is missing there is read and added: a manifest may be large."""
    for entry in (found := entries(root)):
        if entry.name not in known:
            known[entry.name] = _metadata(entry)
    saved = {entry: known[entry.name] for entry in found}
    found = [entry for entry, metadata in saved.items() if metadata.get("keep") is not True]
    latest = {entry.step: entry for entry in found}  # a step that was saved twice counts once
    kept = set(list(latest.values())[-keep.last :])
    if keep.every:
        kept |= {entry for entry in found if entry.step % keep.every == 0}
    if keep.best:
        valued = [(value, entry) for entry in found if (value := _value(saved[entry], keep)) is not None]
        kept |= {entry for _, entry in sorted(valued)[: keep.best]}
    for entry in found:
        if entry not in kept:
            # Renamed first: while it is half deleted, it must not look like a damaged snapshot.
            doomed = entry.path.with_name(f"{entry.name}.old.tmp")
            disk.rename(entry.path, doomed)
            disk.remove(doomed)


def _metadata(entry: Entry) -> dict[str, Any]:
    """What the run noted with a snapshot. One that cannot be read is kept: it may be a snapshot to keep."""
    try:
        return read_manifest(entry.path).metadata
    except (Damaged, RankupError, OSError):
        return {"keep": True}


def _value(metadata: dict[str, Any], keep: Retention) -> float | None:
    """The metric of a snapshot, negated if the largest is best; None if it has none."""
    value = metadata.get("metrics", {}).get(keep.metric)
    if not isinstance(value, (int, float)) or math.isnan(value):
        return None
    return -float(value) if keep.mode == "max" else float(value)
