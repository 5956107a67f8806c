"""Training on an ``IterableDataset`` of unknown length and order: each sample once in each pass.

Before the first step of a pass the ranks compare how the stream begins (``stream_split.py``). Before each step they sum
the numbers of their samples: the sum weights their gradients, and zero ends the epoch. So a rank whose part ends early
goes on with dummy batches, and the others do not wait for it in a collective. The sum for the next step is exchanged
while this one computes. After a complete pass the ranks compare what was read and handed out.

The state of a stream is the mark of the last step that each loader worker has handed out (``stream_reader.py``). On
another number of ranks or workers the marks mean nothing: then a resume skips as many steps as were done, and rank 0
warns. It also warns if the stream does not give the same samples again.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Iterator
from typing import Any

import torch
from torch.utils.data import IterableDataset, default_collate

from rankup.core.whole_lines import say, warn
from rankup.errors import RankupError
from rankup.runtime.data.batches import PreparedData, most_steps
from rankup.runtime.data.loader_options import Loader, loader_options
from rankup.runtime.data.loaders import mover
from rankup.runtime.data.portions import NOTHING, Batch, Position, Ready
from rankup.runtime.data.stream_reader import StreamReader, StreamStep, has_state, set_epoch
from rankup.runtime.data.stream_split import (
    StreamEnd,
    StreamStart,
    check_pass,
    check_sharded,
    check_starts,
    off_by,
)
from rankup.runtime.distributed.control import Control, Exchange
from rankup.runtime.loop.precision import Precision
from rankup.runtime.seed import derive
from rankup.strategies.batch_plan import share


class StreamFeed(PreparedData):
    """``global_batch`` samples per step over all ranks while every rank has enough; fewer near the end.

    ``sharded`` says over what the data set splits itself; None finds out.
    """

    is_stream = True
    _made = itertools.count()  # ranks make the same streams in the same order

    def __init__(
        self,
        dataset: IterableDataset[Any],
        global_batch: int,
        rank: int,
        world_size: int,
        seed: int,
        device: torch.device,
        precision: Precision,
        control: Control | None,
        *,
        parts: int = 1,
        fill: bool = True,
        sharded: bool | str | None = None,
        loader: dict[str, Any] | None = None,
    ) -> None:
        check_sharded(sharded)
        if fill and rank == 0:
            warn(
                "an IterableDataset has no order to keep: on another number of processes the training is another one; "
                "on a map-style Dataset it is the same"
            )
        self.position = Position()
        options = loader_options(loader or {}, device)
        collate = options.pop("collate_fn", None) or default_collate
        start, stop = share(global_batch, rank, world_size)
        self._reader = StreamReader(
            dataset, sharded, rank, world_size, seed, stop - start, parts, collate, fill
        )
        self._workers = max(1, options.get("num_workers", 0))
        if options.get("num_workers", 0):
            self._reader.epoch.share_memory_()  # type: ignore[no-untyped-call]
        self._generator = torch.Generator()
        self._loader = Loader(
            self._reader, batch_size=None, generator=self._generator, collate_fn=_as_is, **options
        )
        self._loader.trains = fill
        self._number = next(self._made)
        self._seed = derive(seed, "stream", rank)
        self._control = control
        self._move = mover(device, precision)
        self._fill = fill
        self._asked = False  # whether the data set asks which worker it is
        self._repeated = True  # whether a resume leads to the samples that it should
        self._ends: list[StreamEnd] = []
        self._marks: list[dict[str, Any] | None] = []
        self._begin(0)
        self.cut: dict[str, int | None] = {
            "length": None,
            "global_batch": global_batch,
            "accumulate": parts,
            "drop_last": 0,
            "sampler": None,
        }

    @property
    def steps(self) -> None:
        return None

    @property
    def restored(self) -> Any:
        """The data set, if a resume loads its own state into it."""
        return self._reader.dataset if has_state(self._reader.dataset) else None

    def state(self) -> dict[str, Any]:
        """How far this rank has read: plain values. Valid for the step that is handed out."""
        return {
            "readers": [self._reader.world_size, self._workers],
            "at": list(self._at),
            "marks": list(self._marks),
            "turn": self._turn,
            "handed": self._handed,
        }

    def load(self, saved: dict[str, Any] | None) -> None:
        """Put back what ``state`` gave; None if another number of ranks saved it."""
        if saved is None or saved["readers"] != [self._reader.world_size, self._workers]:
            self._begin(-1)  # of no epoch: as many steps are skipped as were done
            return
        self._at = (saved["at"][0], saved["at"][1])
        self._marks, self._turn, self._handed = list(saved["marks"]), saved["turn"], saved["handed"]

    def _begin(self, epoch: int) -> None:
        self._at = (epoch, 0)  # steps of this epoch that are handed out
        self._marks = [None] * self._workers
        self._turn = 0  # the worker whose step is the next one
        self._handed = 0  # samples of this pass that this rank has got

    def batches(self, epoch: int, start: int) -> Generator[Batch, None, None]:
        self.behind = None
        one_by_one = self._one_by_one(epoch, start)
        try:
            while (batch := self.behind or next(one_by_one, None)) is not None:
                self.behind = None
                self.ready = Ready(self._alike(one_by_one, batch), None)
                yield batch
        finally:
            one_by_one.close()
            self.ready = NOTHING

    def _alike(self, others: Iterator[Batch], first: Batch) -> Generator[Any, None, None]:
        """The values of those that count as the first one."""
        for batch in others:
            if batch[1:] != first[1:]:
                self.behind = batch
                return
            yield batch.value

    def _one_by_one(self, epoch: int, start: int) -> Generator[Batch, None, None]:
        exact = self._at == (epoch, start)
        if not exact or not start:
            self._begin(epoch)
        marks = list(self._marks) if start else []
        if marks or self._reader.marks:
            self._loader._iterator = None  # persistent workers would begin as they did before
        self._reader.marks, self._reader.turn = marks, self._turn
        self._generator.manual_seed(derive(self._seed, epoch))
        self._reader.epoch[0] = epoch
        if self._fill:
            set_epoch(self._reader.dataset, epoch)
        self._ends = []
        most = most_steps()
        try:
            items = iter(self._loader)
            starts: list[StreamStart] = [next(items) for _ in range(self._workers)]
            local: Iterator[StreamStep] = self._local(items)
            last = next((begin.redone for begin in starts if begin.redone), None)
            for _ in range(0 if exact else start):
                step = next(local, None)
                self._handed_out(step)
                last = step.pieces if step else last
            self._compare(starts, start, exact)
            if most is not None:
                local = itertools.islice(local, max(0, most - start))
            in_step = self._fill and self._control is not None
            yield from self._in_step(local, last) if in_step else self._alone(local)
        except GeneratorExit:
            # The other ranks may have finished their evaluation, and wait in the comparison below.
            if not self._fill:
                with contextlib.suppress(RankupError, RuntimeError, ValueError):  # the process may be ending
                    self._gather((None, [], 0))
            raise
        if most is None:
            self._check_pass()

    def _local(self, items: Iterator[Any]) -> Iterator[StreamStep]:
        """This rank's steps."""
        for item in items:
            if isinstance(item, StreamEnd):
                self._ends.append(item)
            else:
                yield item

    def _handed_out(self, step: StreamStep | None) -> None:
        """Called before the last batch of a step is given to the loop; None for a dummy batch."""
        self._at = (self._at[0], self._at[1] + 1)
        if step is None:
            return
        before = self._marks[step.worker]
        kept = step.mark["kept"] or (before and before["kept"])
        self._marks[step.worker] = {**step.mark, "kept": kept}
        self._turn = (step.worker + 1) % self._workers
        self._handed += sum(count for _, count in step.pieces)

    def _alone(self, local: Iterator[StreamStep]) -> Iterator[Batch]:
        for step in local:
            total = sum(count for _, count in step.pieces)
            yield from self._batches_of(step, step.pieces, total)

    def _in_step(self, local: Iterator[StreamStep], dummy: Any) -> Iterator[Batch]:
        """``dummy``: the pieces of an earlier step, for a rank whose part has ended."""
        step, total = self._announce(local)
        while True:
            now, (samples, dummies) = step, total.wait()
            now_total = int(samples)
            if now_total == 0:
                return
            dummy = now.pieces if now else dummy
            if dummy is None:
                raise RankupError(
                    "stream-too-short",
                    f"rank {self._reader.rank} got no sample at all from the stream while others did",
                    hint="the stream, or its number of shards, is smaller than the number of ranks. If these are the "
                    "shards, leave sharded= out: each rank then reads all of them, and takes every k-th sample",
                    exit_code=1,
                )
            step, total = self._announce(local)  # the next step's, while this one computes
            pieces = now.pieces if now else [(value, 0) for value, _ in dummy]
            yield from self._batches_of(now, pieces, now_total, dummies=dummies > 0)

    def _batches_of(
        self, step: StreamStep | None, pieces: list[Any], total: int, *, dummies: bool = False
    ) -> Iterator[Batch]:
        for number, (value, count) in enumerate(pieces):
            last = number == len(pieces) - 1
            if last:
                self._handed_out(step)
            if count or self._fill:
                yield Batch(
                    value if self._move is None else self._move(value), count, total, last, dummies=dummies
                )

    def _announce(self, local: Iterator[StreamStep]) -> tuple[StreamStep | None, Exchange[list[float]]]:
        step = next(local, None)
        assert self._control is not None
        counts = [count for _, count in step.pieces] if step else [0]
        return step, self._control.begin("the next batch of a stream", sum(counts), 0 in counts)

    def _compare(self, starts: list[StreamStart], done: int, exact: bool) -> None:
        """A collective at the beginning of a pass."""
        mine = [begin._replace(redone=None) for begin in starts]
        everyone = [begin for rank in self._gather(mine) for begin in rank]
        check_starts(everyone, self._reader.sharded)
        self._asked, self._repeated = everyone[0].asked, all(begin.same for begin in everyone)
        if self._reader.rank:
            return
        if self._fill and self._asked and self._reader.sharded is None and self._reader.world_size > 1:
            warn(
                "the data set splits itself over loader workers: each rank reads all of it, and takes every "
                f"{self._reader.world_size}th sample. If it does not split over ranks too, sharded='workers' lets each "
                "rank read its part alone"
            )
        if not exact:
            why = "another number of processes or loader workers reads it, which get its samples in another order"
            way = "a map-style Dataset has one order on any number of them"
        elif not self._repeated:
            why = "the stream does not give the same samples again"
            way = "shuffle it with the global generators, or by its set_epoch(epoch)"
        else:
            why = ""
        if done and why:
            say(
                f"warning: this epoch is resumed after its step {done}, and not with the samples that are left of it: "
                f"{why}. Some samples of this epoch are seen twice, and some not at all; {way}"
            )

    def _check_pass(self) -> None:
        """A collective, for a pass that this rank has completed."""
        reports = self._gather((self._number, self._ends, self._handed))
        if any(number != self._number for number, _, _ in reports):
            return  # a rank has left it, or two evaluations in a zip did not end in the same order on all ranks
        if not self._repeated:
            return  # that was said
        handed = sum(count for _, _, count in reports)
        check_pass([end for _, ends, _ in reports for end in ends], handed, self._reader.sharded, self._asked)
        with contextlib.suppress(TypeError, NotImplementedError):  # most streams have no length
            length = len(self._reader.dataset)  # type: ignore[arg-type]
            if self._reader.rank == 0 and length != handed:
                warn(
                    f"the data set says that it has {length} samples, but {handed} were handed out over all ranks in "
                    f"this pass: {off_by(handed, length)}. Its __len__ is wrong, or what sharded= says of it"
                )

    def _gather(self, mine: Any) -> list[Any]:
        return [mine] if self._control is None else self._control.gather("a pass over a stream", mine)


def _as_is(value: Any) -> Any:
    return value
