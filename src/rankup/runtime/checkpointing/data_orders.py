"""Lists and arrays of a data set that ranks must hold alike: they share out the samples by their order."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rankup.errors import RankupError
from rankup.runtime.checkpointing.attributes import mark
from rankup.runtime.checkpointing.carried.messages import warn
from rankup.runtime.checkpointing.data_rows import DataRows, order_free, rows_of
from rankup.runtime.context import RunContext


class DataOrders:
    """Of one run."""

    def __init__(
        self, run: RunContext, data_sets: Callable[[], Iterator[tuple[str, Any]]], rows: DataRows
    ) -> None:
        self._run = run
        self._data_sets = data_sets
        self._rows = rows
        self._said = False
        self._lists: dict[str, tuple[int, int, Any]] = {}  # as the last epoch's training ended

    def note_lists(self) -> None:
        """A loop begins, or an epoch's last batch is trained: what changes from here on is changed by the script, and
        not by reading samples."""
        if self._run.control is not None:
            self._lists = self._lists_now()

    def _lists_now(self) -> dict[str, tuple[int, int, Any]]:
        """(identity, length, mark) of each plain list of a data set, by what a message calls it."""
        return {
            f"list {name} of {type(data).__name__}": (id(value), len(value), mark(value))
            for _, data in self._data_sets()
            for name, value in vars(data).items()
            if isinstance(value, list)
        }

    def check(self, changed: Mapping[str, list[Any]]) -> None:
        """RankupError ``data-differ`` if ranks have put a list or an array of their data set into different orders, as
        a shuffle by a generator of each rank's own does: some samples would be seen twice, and others not at all. Other
        items on each rank are warned of, as of negative samples that each has drawn. A collective.

        ``changed``: the items of lists that have changed since the loop began, by what a message calls the list.
        """
        control = self._run.control
        if control is None:
            return
        mine: dict[str, tuple[Any, Any]] = {
            f"array {where}": (order_free(array), rows_of(array))
            for where, array in self._rows.changed().items()
        }
        for name, values in changed.items():
            items = [repr(item) for item in values]
            mine[name] = (_digest(sorted(items)), _digest(items))
        lists = self._lists_now()
        everyone = control.gather("the order of data sets", mine)
        for where in sorted({name for one in everyone for name in one}):
            found = [one.get(where) for one in everyone]
            if (
                all(found)
                and len({items for items, _ in found}) == 1
                and len({order for _, order in found}) > 1
            ):
                raise RankupError(
                    "data-differ",
                    f"the {where} (a data set) holds the same items on all ranks in different orders: ranks "
                    "would train some samples twice, and others not at all",
                    hint="leave the shuffling to rankup, which shuffles each epoch; or shuffle by a generator of its "
                    "own, random.Random(epoch.index), on all ranks alike",
                    exit_code=1,
                )
            if where.startswith("array ") and len({*found}) > 1:
                self._warn_of_ranks(
                    where,
                    "numbers in it: each rank changes its own copy, by its own samples. Give all ranks what each one "
                    "found before they change it: data.weights[run.gather(indices)] = run.gather(losses)",
                )
            elif all(found) and len({*found}) > 1 and self._was_drawn(where, lists):
                self._warn_of_ranks(
                    where,
                    "items in it: each rank has drawn its own, and the training depends on the number of ranks. Draw "
                    "by a generator that is made from epoch.index, on all ranks alike: "
                    "random.Random(epoch.index), numpy.random.default_rng(epoch.index)",
                )

    def _was_drawn(self, where: str, lists: Mapping[str, tuple[int, int, Any]]) -> bool:
        """Whether the script has made the list anew, or has changed its items, since the last batch. What a data set
        adds to as it is read, for itself, gets longer."""
        before, now = self._lists.get(where), lists.get(where)
        if before is None or now is None or before[2] == now[2]:
            return False
        return before[0] != now[0] or before[1] == now[1]

    def _warn_of_ranks(self, where: str, why: str) -> None:
        if self._said or not self._run.world.is_main:
            return
        self._said = True
        warn(f"the {where} (a data set) has changed in training, and the ranks hold different {why}")


def _digest(items: list[str]) -> str:
    return hashlib.sha256("\0".join(items).encode()).hexdigest()
