"""``Saver``: one per run. It locks the directory, saves while the training continues, and finds what to resume from.

    saver = Saver(run.directory.path / "snapshots", run.world)
    if found := saver.newest():
        found.load_tensors(live); rank_state = found.rank_state()
    saver.save(step, SnapshotState(live, rank_state=…, metadata=…))   # returns when everything is copied
    saver.wait()                                                      # returns when it is durable
    saver.close()

All but ``seconds`` are collectives: call them on every rank, in the same order, from one thread.
"""

from __future__ import annotations

import atexit
import functools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rankup.core.locks import Lock
from rankup.snapshots import disk
from rankup.snapshots.layout import KEEP, LOCK, Retention, clear_leftovers, entries
from rankup.snapshots.peers import Peers
from rankup.world import World

if TYPE_CHECKING:
    from rankup.snapshots.snapshot import Snapshot
    from rankup.snapshots.state import SnapshotState, Staged, Staging
    from rankup.snapshots.writing import Writer

_REMEMBERED = 5
# How long an interpreter that ends waits for a save in flight: peers that have ended must not block it for ever.
LAST_WAIT_S = 60.0


class Saver:
    """Saves into ``root/step-N/``. At most one save is in flight: the next one waits for it.

    An error while writing is raised by the next ``save``, ``wait`` or ``newest``, as the same RankupError on all ranks:
    the training may continue. A snapshot that was durable stays in any case.
    """

    def __init__(
        self,
        root: Path,
        world: World,
        *,
        peers: Peers | None = None,
        keep: Retention = KEEP,
        asynchronous: bool = True,
        patience: float = 10.0,
    ) -> None:
        """Lock ``root``, which is made if missing. A collective; with several ranks, the default process group must
        exist. ``peers`` (a process group) may serve several savers, one after another. ``patience`` (seconds): how long
        to wait for a process that is ending and still holds the lock.

        Raises RankupError: ``directory-in-use``, ``unwritable-directory``, ``partly-shared``.
        """
        self._peers = peers or Peers(world)
        self._root = root
        self._asynchronous = asynchronous
        self._thread: threading.Thread | None = None
        self._copied: threading.Event | None = None
        self._error: Exception | None = None
        self._wholes: list[float] = []
        self.shared = self._peers.shares(root)  # whether all nodes see one directory
        self._lock = Lock(root / LOCK)
        self._ending = threading.Lock()
        self._writing = False
        self._leaving = False  # release the directory as soon as nothing is in flight
        leads = self._peers.around(self.shared).leads
        self._peers.do(lambda: self._take_lock(patience) if leads else None)
        self._peers.do(lambda: clear_leftovers(root) if leads else None)
        self._keep = keep

    # What saves and what reads is imported when it has something to do: a rank that begins to train opens fewer files.

    @functools.cached_property
    def _staging(self) -> Staging:
        from rankup.snapshots.state import Staging

        return Staging()

    @functools.cached_property
    def _writer(self) -> Writer:
        from rankup.snapshots.writing import Writer

        return Writer(self._root, self._peers, shared=self.shared, keep=self._keep)

    def _take_lock(self, patience: float) -> None:
        """One run at a time: two would delete each other's snapshots."""
        with disk.explained(self._root / LOCK):
            self._lock.take(
                busy=f"another run already saves to {str(self._root)!r}",
                hint="use a different directory for each run, or stop the other run first",
                code="directory-in-use",
                patience=patience,
            )

    def newest(self, wanted: Callable[[dict[str, Any]], bool] = lambda metadata: True) -> Snapshot | None:
        """The newest snapshot that is good on all nodes, and whose metadata is ``wanted``; None if there is none.

        Every file's size and SHA-256 is compared; the ranks share the work. A damaged snapshot is renamed to
        ``step-N.damaged`` and never deleted. Raises RankupError: ``other-format``; ``no-good-snapshot`` if there are
        snapshots and all are damaged.
        """
        self.wait()
        leads = self._peers.around(self.shared).leads
        candidates = self._peers.union(lambda: entries(self._root) if leads else [])
        if not candidates:
            return None
        from rankup.snapshots import newest

        return newest.newest(self._root, candidates, self._peers, self.shared, wanted)

    @property
    def idle(self) -> bool:
        """Whether no save is in flight on this rank, so that the buffers are free."""
        return not self._writing

    def stage(self, state: SnapshotState) -> Staged:
        """Copy ``state``, to ``save`` it later or not at all. It is valid until the next ``save`` or ``stage``."""
        self.wait()
        return self._staging.copy(state, self._writer.plan)

    def save(self, step: int, state: SnapshotState | Staged) -> None:
        """Save ``state`` as of ``step``, and return when it is copied, except ``SnapshotState.stable``: see
        ``wait_staged``. With ``asynchronous=False`` return when it is durable.

        A step that was saved before is not touched: the new snapshot is ``step-N-2``, and counts as newer.
        """
        began = time.perf_counter()
        self.wait()
        from rankup.snapshots.state import Staged

        writer = self._writer
        staged = (
            state
            if isinstance(state, Staged)
            else self._staging.copy(state, writer.plan, lazily=self._asynchronous)
        )
        self._copied = staged.copied

        def work() -> None:
            try:
                writer.write(step, staged)
                self._wholes = [*self._wholes, time.perf_counter() - began][-_REMEMBERED:]
            except Exception as error:  # raised by the next call of the training
                self._error = error
            finally:
                staged.copied.set()  # also if nothing was written
                with self._ending:
                    self._writing = False
                    if self._leaving:
                        self._lock.release()

        # A daemon: a rank that fails must be able to end while its writer waits for other ranks. Any other end waits
        # for the thread (atexit), since without an interpreter it would abort the process.
        self._thread = threading.Thread(target=work, name="rankup-snapshot", daemon=True)
        self._writing = True
        self._thread.start()
        atexit.register(self._thread.join, LAST_WAIT_S)
        if not self._asynchronous:
            self.wait()

    def wait_staged(self) -> None:
        """Wait until the last ``save`` has copied everything: ``SnapshotState.stable`` may change afterwards."""
        if self._copied is not None:
            self._copied.wait()
            self._copied = None

    def wait(self) -> None:
        """Return when the save in flight is durable on all nodes, or raise its error."""
        if self._thread is not None:
            self._thread.join()
            atexit.unregister(self._thread.join)
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    @property
    def seconds(self) -> float | None:
        """How long the slowest of this rank's last saves took until it was durable; None before the first."""
        return max(self._wholes, default=None)

    def close(self) -> None:
        """Wait, and release the directory."""
        try:
            self.wait()
        finally:
            self._lock.release()

    def release(self) -> None:
        """Release the directory without waiting for other ranks: after a failure.

        If a save is in flight, the directory is released when it ends.
        """
        with self._ending:
            self._leaving = True
            if not self._writing:
                self._lock.release()

    def __enter__(self) -> Saver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.release()
