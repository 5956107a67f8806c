"""Launchers: who forms the ranks. Each is one pure function from a ``Launch`` to the tokens that start it."""

from __future__ import annotations

LAUNCHERS = {
    "single": "rankup.launchers.single:tokens",
    "torchrun": "rankup.launchers.torchrun:tokens",
}
