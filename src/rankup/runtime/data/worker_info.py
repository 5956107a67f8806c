"""The loader worker's number as a data set sees it.

Data sets that split themselves call ``torch.utils.data.get_worker_info()`` (Hugging Face's streaming, WebDataset's
``split_by_worker``). Here they get the number of a reader, and it is noted whether they asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils.data._utils import worker as torch_worker

from rankup.errors import RankupError


class PresentedWorker:
    """In place of torch's ``WorkerInfo``. ``asked``: whether ``id`` was read, without which a data set cannot split.

    ``seed`` is the same for all readers: a data set that shuffles by it has the same order everywhere.
    """

    def __init__(self, number: int, count: int, seed: int, dataset: Any) -> None:
        self._number = number
        self.num_workers = count
        self.seed = seed
        self.dataset = dataset
        self.asked = False

    @property
    def id(self) -> int:
        self.asked = True
        return self._number


@contextmanager
def presented(worker: PresentedWorker | None) -> Iterator[None]:
    """While inside, ``get_worker_info()`` gives ``worker``; None, as in a process that is no worker."""
    if not hasattr(torch_worker, "_worker_info"):
        raise RankupError(
            "worker-info-hidden",
            "this version of torch does not let rankup tell a data set which reader it is",
            hint="use a map-style data set, or another version of torch",
            exit_code=1,
        )
    before = torch_worker._worker_info
    torch_worker._worker_info = worker  # type: ignore[assignment]
    try:
        yield
    finally:
        torch_worker._worker_info = before
