"""Ranks that compute with the same blocks in the same order: what fsdp's collectives need, compared over ranks.

Under fsdp each block's parameters are gathered when the block runs. If one rank runs another block than its peers, the
gathers of two blocks pair up: garbage in silence if their sizes agree, a hang if not. So every rank looks at its next
event (a block's forward, its backward, the end of a forward) before the collective that belongs to it.

All ranks have the same tree of the sequences of events so far. If the tree has only one next event, and this rank has
the same, nothing is communicated. If there are several, or this rank has a new one, it asks the others over the store:
all must have the same event. If its peers do not ask (they follow the known sequence, and wait in a gather), all ranks
end with an error.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from rankup.errors import RankupError

#: How long a rank waits for its peers at a fork; shorter than the timeout of the collective that these may wait in.
PATIENCE_S = 60.0
# The tree has a limit: sequences that never repeat are compared every time.
LARGEST_TREE = 20_000

_counter = itertools.count()


class BlockOrder:
    """One sequence after another: ``begin``, then ``next`` for each event, the last of which is ``next(last=True)``.

    Made on every rank alike, in the same order. An event is a text, the same on every rank that means the same.
    """

    def __init__(self) -> None:
        store: Any = distributed_c10d._get_default_store()
        self._store: Any = dist.PrefixStore(f"rankup/blocks/{next(_counter)}", store)  # type: ignore[attr-defined]
        self._world_size = dist.get_world_size()
        self._rank = dist.get_rank()
        self._tree: dict[str, Any] = {}
        self._size = 0
        self._node: dict[str, Any] = self._tree
        self._asked = 0
        self._last_keys: list[str] = []

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
        place = str(self._asked)
        self._asked += 1
        mine = f"{place}/{hashlib.sha256(event.encode()).hexdigest()}"
        self._store.add(mine, 1)
        if self._store.add(f"{place}/here", 1) == self._world_size:
            alike = self._store.add(mine, 0) == self._world_size
            self._store.set(f"{place}/alike", str(alike))
        else:
            try:
                self._store.wait([f"{place}/alike"], timedelta(seconds=PATIENCE_S))
            except RuntimeError as error:
                raise self._alone(event) from error
        alike = self._store.get(f"{place}/alike") == b"True"
        events = [] if alike else self._events(place, event)
        self._all_know(place)
        if not alike:
            raise _uneven(
                "; ".join(
                    f"{_ranks([rank for rank, other in enumerate(events) if other == one])}: {one}"
                    for one in dict.fromkeys(events)
                )
            )
        if self._rank == 0:  # all ranks are here, so nobody reads the keys of the place before
            for key in self._last_keys:
                with contextlib.suppress(RuntimeError):
                    self._store.delete_key(key)
        self._last_keys = [mine, *(f"{place}/{name}" for name in ("here", "alike", "known", "all-know"))]

    def _events(self, place: str, event: str) -> list[str]:
        """What each rank is about to do."""
        self._store.set(f"{place}/rank-{self._rank}", event)
        return [self._store.get(f"{place}/rank-{rank}").decode() for rank in range(self._world_size)]

    def _all_know(self, place: str) -> None:
        """Rank 0 holds the store: it waits until the others have read it, since it may be about to end."""
        if self._store.add(f"{place}/known", 1) == self._world_size:
            self._store.set(f"{place}/all-know", "1")
        elif self._rank == 0:
            with contextlib.suppress(RuntimeError):
                self._store.wait([f"{place}/all-know"], timedelta(seconds=PATIENCE_S))

    def _alone(self, event: str) -> RankupError:
        before = " or ".join(sorted(self._node)) or "an end"
        return _uneven(
            f"rank {self._rank}: {event}, where steps before had: {before}; "
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
