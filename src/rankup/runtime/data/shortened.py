"""Shortens epochs and loops, for ``rankup verify --quick``. Off unless these variables are set.

| variable | what it does |
|---|---|
| ``RANKUP_EPOCH_STEPS`` | an epoch, and a pass of an evaluation, has at most so many steps |
| ``RANKUP_EPOCHS`` | a loop trains at most so many epochs |

The script sees a smaller data set and a smaller goal, and nothing else changes."""

from __future__ import annotations

import os

from rankup.runtime.data.batches import DataFeed

EPOCH_STEPS = "RANKUP_EPOCH_STEPS"
EPOCHS = "RANKUP_EPOCHS"


def most_steps() -> int | None:
    """The most steps of an epoch; None: all."""
    return int(os.environ.get(EPOCH_STEPS) or 0) or None


def shorter_goal(feed: DataFeed, unit: str, goal: int) -> int:
    """The goal of a loop over ``goal`` epochs or steps."""
    epochs = int(os.environ.get(EPOCHS) or 0)
    if not epochs:
        return goal
    steps = (feed.steps or most_steps()) if unit == "steps" else 1
    return goal if steps is None else min(goal, epochs * steps)
