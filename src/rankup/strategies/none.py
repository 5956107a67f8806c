"""``none``: one process. No process group, no wrapper: a debugger sees the user's own model."""

from __future__ import annotations

from rankup.strategies.base import Strategy


class NoStrategy(Strategy):
    name = "none"
    one_process = True
