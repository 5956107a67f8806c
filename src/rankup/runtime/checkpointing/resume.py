"""Restores a run from a snapshot, before its first step."""

from __future__ import annotations

from rankup.runtime.checkpointing import state
from rankup.runtime.checkpointing.state import StateParts
from rankup.runtime.context import RunContext
from rankup.snapshots.snapshot import Snapshot


def resume(run: RunContext, parts: StateParts, found: Snapshot, *, again: bool = False) -> None:
    """Restore what ``found`` contains. RankupError, before anything has changed, if it belongs to another run.
    ``again``: it has been restored, and reported, by an earlier loop."""
    state.check(run, parts, found.metadata)
    outline = found.outline()
    tensors = {
        str(index): state.target(run, model, optimizer, outline.get(str(index), {}))
        for index, (model, optimizer) in enumerate(run.prepared)
    }
    parts.settings.widen(tensors, outline)
    found.load_tensors(tensors, partial=not run.strategy.every_name)
    state.restore(
        run,
        parts,
        tensors,
        found.rank_state(),
        found.first_rank_state(),
        found.metadata,
        found.adopted_rank_states,
    )
    if again:
        return
    positions = ", ".join(f"epoch {p['at'][0] + 1}, step {p['at'][1]}" for p in found.metadata["positions"])
    run.print(f"resumed from {found.path.name}: {positions}")
    if any(feed.steps is not None and feed.position.step >= feed.steps for feed in run.feeds):
        run.print("the code after an epoch's inner loop is next")
