"""The arguments of the DataLoader, and its workers: they must stay alive until their rank has saved."""

from __future__ import annotations

import atexit
import inspect
import multiprocessing
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data._utils import signal_handling

from rankup.errors import RankupError

if TYPE_CHECKING:
    from rankup.runtime.data.worker_copies import WorkerCopies

TAKEN = {
    "batch_size": "global_batch= is the batch of all processes together",
    "generator": "rankup.init(seed=) seeds everything",
    "in_order": "batches come in order: the position in the epoch is a number of batches",
    "shuffle": "run.batches goes through the data set in order",
    "sampler": "run.batches hands out each sample once: torch.utils.data.Subset(dataset, numbers) is a part of it",
    "batch_sampler": "run.batches hands out each sample once, in global batches of global_batch=",
    "drop_last": "run.batches hands out each sample once",
}


def check_names(options: dict[str, Any], known: tuple[str, ...]) -> None:
    """An error for an unknown keyword; ``known`` are those of the call itself."""
    names = tuple(inspect.signature(DataLoader.__init__).parameters)[2:]
    for name in options:
        if name not in names:
            from rankup.core.nearest import nearest

            near = nearest(name, [*known, *names])
            raise RankupError(
                "unknown-option",
                f"{name}= is neither an option of rankup nor of torch's DataLoader",
                hint=f"do you mean {near}=?" if near else "see docs/reference/library-in-full.md",
            )


def loader_options(options: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """The user's DataLoader arguments, less those that would undo the sharding."""
    for name, hint in TAKEN.items():
        if name in options:
            raise RankupError(
                "loader-option-taken",
                f"{name}= is not for the loader here: rankup cuts the batches",
                hint=hint,
            )
    merged = {"pin_memory": device.type != "cpu", **options}
    merged["worker_init_fn"] = Shielded(options.get("worker_init_fn"))
    if options.get("num_workers"):
        from rankup.runtime.data.checked_fork import checked

        merged["multiprocessing_context"] = checked(options.get("multiprocessing_context"))
    return merged


class Shielded:
    """A worker's first function: the worker ignores SIGTERM to the whole process group until its rank has saved.

    It still ends with its rank. torch waits for the end of the process from which the worker was forked, which is not
    its rank under forkserver.
    """

    def __init__(self, users: Callable[[int], None] | None) -> None:
        self._users = users

    def __call__(self, worker: int) -> None:
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
        threading.Thread(target=_end_with, args=(multiprocessing.parent_process(),), daemon=True).start()
        if self._users is not None:
            self._users(worker)


def _end_with(rank: Any) -> None:
    rank.join()
    os._exit(1)


def check_main_guard() -> None:
    """An error in a spawned process that imports the script, and so begins to train instead of loading data."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise RankupError(
            "no-main-guard",
            "a worker process imports the script, which begins to train there as well",
            hint='put what the script does under `if __name__ == "__main__":`, as multiprocessing needs for spawn '
            "and forkserver",
            exit_code=1,
        )


class Loader(DataLoader[Any]):
    """A DataLoader whose workers end with this process, even if its iterators are still referenced."""

    trains = False  # whether a training goes over it
    copies: WorkerCopies | None = None  # what its workers have, while there are any

    def __iter__(self) -> Any:
        if self.num_workers and self.trains:
            from rankup.runtime.data.worker_copies import WorkerCopies

            self.copies = WorkerCopies(self.dataset.dataset, self.dataset.collate)  # type: ignore[attr-defined]
        batches = super().__iter__()
        return self._from_workers(batches) if self.num_workers else batches

    def _from_workers(self, batches: Any) -> Iterator[Any]:
        try:
            while True:
                try:
                    batch = next(batches)
                except StopIteration:
                    return
                except (OSError, EOFError):
                    _name_failed_worker()
                    raise
                yield batch
        finally:
            if not self.persistent_workers:
                self.copies = None

    def _get_iterator(self) -> Any:
        iterator = super()._get_iterator()
        if hasattr(iterator, "_workers"):
            if not _iterators:
                atexit.unregister(_dismiss_workers)
                atexit.register(_dismiss_workers)  # after, and so called before, what waits for children
            _iterators.add(iterator)
        return iterator


def _name_failed_worker() -> None:
    """torch's own error for a worker that was killed. Its connections close a moment before it counts as ended."""
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        signal_handling._error_if_any_worker_fails()  # type: ignore[attr-defined]
        time.sleep(0.05)


_iterators: weakref.WeakSet[Any] = weakref.WeakSet()


def _dismiss_workers() -> None:
    """Kill the workers at exit. The interpreter would send SIGTERM, which they ignore, and wait for ever."""
    workers = [worker for iterator in _iterators for worker in iterator._workers]
    if workers:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's handler raises for a worker that is killed
    for worker in workers:
        worker.kill()
