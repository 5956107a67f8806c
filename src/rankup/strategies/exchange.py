"""What ranks exchange in the course of a step, apart from the run's own exchanges: a script may ask for a sum on one
rank while another one is in its step, and these must not meet."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from datetime import timedelta

from rankup.messages.tree import of_all_ranks

TIMEOUT = timedelta(minutes=10)


def on_some_rank(flags: Iterable[bool]) -> list[bool]:
    """Of each flag, whether it is set on some rank. A collective; all ranks have as many."""
    return of_all_ranks("strategy", TIMEOUT).exchange(
        list(flags), lambda one, other: list(map(operator.or_, one, other))
    )
