"""``run.batches``: each sample once over all ranks, with gradients off, while the run may be asked to stop.

Several evaluations may be open at once: one inside the body of another, two in a ``zip``, or one that its loop never
finished. Gradients come back on when the last of them ends, or when a training step begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from rankup.errors import RankupError
from rankup.runtime.checkpointing.checkpointing import Checkpointing
from rankup.runtime.context import RunContext
from rankup.runtime.data.batches import DataFeed
from rankup.runtime.data.portions import Batch


class Evaluations:
    """The open evaluations of one run, in the order in which they began."""

    def __init__(self, run: RunContext, checkpointing: Checkpointing) -> None:
        self._run = run
        self._checkpointing = checkpointing
        self._open: list[_Evaluation] = []
        self._gradients = True  # whether they were on before the first of the open ones
        self._batch: Batch | None = None  # of the training step that the first of the open ones stands in
        self._latest: _Evaluation | None = None  # the one that handed out the last batch

    def visit(self, feed: DataFeed) -> Iterator[Any]:
        """The batches of ``feed``. The question whether to stop is a collective, which all ranks join equally often,
        even if they have different numbers of batches."""
        one = _Evaluation(feed, self._checkpointing.stop_requests(feed.steps), self._run.batch)
        self._begin(one)
        try:
            for batch in one.batches:
                self._run.batch, self._latest = batch, one
                yield batch.value
                if one.overtaken:
                    raise _overtaken()
                self._check_turn(one)
                self._run.batch = one.outer
                if next(one.stop_requests, False):
                    self._checkpointing.save_and_exit()
            if one.overtaken:
                raise _overtaken()
        except (
            GeneratorExit
        ):  # a break: an exception would be lost here; the next check for a request to stop ends the run
            one.close()
            raise
        finally:
            self._end(one)
        if any(list(one.stop_requests)):
            self._checkpointing.save_and_exit()

    def overtake(self) -> None:
        """A training step begins: evaluations that are open were left unfinished by their loop."""
        for one in self._open[:]:
            one.overtaken = True
            one.close()
            self._end(one)

    def _begin(self, one: _Evaluation) -> None:
        self._run.portion.cut()  # the next step closes what its loop has left open
        if not self._open:
            self._gradients, self._batch = torch.is_grad_enabled(), self._run.batch
            # Off, not only for speed: a forward that DDP expects a backward of may be a collective.
            torch.set_grad_enabled(False)
        self._open.append(one)
        self._run.evaluating = True

    def _end(self, one: _Evaluation) -> None:
        if one not in self._open:
            return
        inner = one is self._open[-1]
        self._open.remove(one)
        if not self._open:
            self._run.evaluating = False
            torch.set_grad_enabled(self._gradients)
            self._run.batch = self._batch
        elif inner:
            self._run.batch = one.outer

    def _check_turn(self, one: _Evaluation) -> None:
        """An error if two evaluations take turns, as in a ``zip``, and their batches are cut differently: the counts of
        one would weight what was computed on the other."""
        other = self._latest
        takes_turns = other is not None and other is not one and other in self._open
        if takes_turns and other is not None and other.feed.cut != one.feed.cut:
            raise RankupError(
                "uneven-zip",
                "two evaluations take turns, and their batches are cut differently",
                context=f"{one.feed.cut} and {other.feed.cut}",
                hint="evaluate one after the other, or one data set that yields both "
                "(torch.utils.data.StackDataset)",
                exit_code=1,
            )


class _Evaluation:
    def __init__(self, feed: DataFeed, stop_requests: Iterator[bool], outer: Batch | None) -> None:
        self.feed = feed
        self.stop_requests = stop_requests
        self.outer = outer  # the batch that was at hand when it began
        self.overtaken = False
        self.batches = feed.batches(0, 0)

    def close(self) -> None:
        """After a break: join the collectives of the ranks that continue to the end (whether to stop, and how much of a
        stream was handed out)."""
        list(self.stop_requests)
        self.batches.close()


def _overtaken() -> RankupError:
    return RankupError(
        "evaluation-overtaken",
        "an evaluation goes on after a training step began, which had turned gradients on again",
        hint="run.batches is for evaluations: finish or leave each before the next training step. To train on two "
        "data sets at once, prepare one that yields both (torch.utils.data.StackDataset)",
        exit_code=1,
    )
