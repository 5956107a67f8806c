"""Ranks that compute with the same blocks in the same order: what fsdp's collectives need, compared over ranks.

Under fsdp each block's parameters are gathered when the block runs. If one rank runs another block than its peers, the
gathers of two blocks pair up: garbage in silence if their sizes agree, a hang if not. So every rank looks at its next
event (a block's forward, its backward, the end of a forward) before the collective that belongs to it.

All ranks have the same tree of the sequences of events so far. If the tree has only one next event, and this rank has
the same, nothing is communicated. If there are several, or this rank has a new one, it asks the others:
all must have the same event. If its peers do not ask (they follow the known sequence, and wait in a gather), all ranks
end with an error.
"""

from __future__ import annotations

import operator
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from rankup.errors import RankupError
from rankup.messages.tree import Tree

#: How long a rank waits for its peers at a fork; shorter than the timeout of the collective that these may wait in.
PATIENCE_S = 60.0
# The tree has a limit: sequences that never repeat are compared every time.
LARGEST_TREE = 20_000


class BlockOrder:
    """One sequence after another: ``begin``, then ``next`` for each event, the last of which is ``next(last=True)``.

    Made on every rank alike, in the same order. An event is a text, the same on every rank that means the same.
    """

    def __init__(self) -> None:
        rank, size = dist.get_rank(), dist.get_world_size()
        self._others = Tree(range(size), rank, "the order of blocks", timedelta(seconds=PATIENCE_S))
        self._tree: dict[str, Any] = {}
        self._size = 0
        self._node: dict[str, Any] = self._tree

    def begin(self) -> None:
        self._node = self._tree

    def next(self, event: str) -> None:
        """RankupError ``fsdp-uneven-blocks`` if this rank has another event than the others."""
        known = self._node
        if not (len(known) == 1 and event in known):
            self._ask(event)
        if event not in known:
            if self._size >= LARGEST_TREE:
                self._node = {}
                return
            known[event] = {}
            self._size += 1
        self._node = known[event]

    def _ask(self, event: str) -> None:
        """Return if every rank asks for the same event here. A collective."""
        try:
            if len(self._others.exchange({event}, operator.or_)) == 1:
                return
            events = self._others.gather(event)
        except RuntimeError as error:
            raise self._alone(event) from error
        raise _uneven(
            "; ".join(
                f"{_ranks([rank for rank, other in enumerate(events) if other == one])}: {one}"
                for one in dict.fromkeys(events)
            )
        )

    def _alone(self, event: str) -> RankupError:
        before = " or ".join(sorted(self._node)) or "an end"
        return _uneven(
            f"rank {self._others.rank}: {event}, where steps before had: {before}; "
            f"the other ranks did not follow within {PATIENCE_S:g} s"
        )


def _ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


def _uneven(what: str) -> RankupError:
    return RankupError(
        "fsdp-uneven-blocks",
        "ranks do not compute with the same blocks of the model in the same order, which fsdp needs",
        context=what,
        hint="prepare(…, find_unused_parameters=True): then no block is gathered by itself. Or use ddp",
        exit_code=1,
    )
