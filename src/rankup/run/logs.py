"""What the ranks of this node print: from their files to the view, whole lines, tracebacks unmixed.

Ranks write to files of their own; this follows them. A traceback is held until it is complete, and one that is
only a consequence (a connection that another rank closed) until it is known of what: so the first one shown is
the one that matters.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from rankup.core.tail import Tail, size_of
from rankup.run.failure import (
    TORCH_PREFIX,
    TRACEBACK,
    Exit,
    Logs,
    first_failure,
    is_consequence,
    last_exception,
    reason,
)
from rankup.run.job import View

_QUIET = 0.3  # seconds without another line end a traceback
_HELD = 3.0  # seconds that a consequence waits for its cause


@dataclass
class _Block:
    rank: int
    began: float
    last: float
    lines: list[str] = field(default_factory=list)

    def is_consequence(self) -> bool:
        return is_consequence(last_exception(self.lines) or "")


class Output:
    """Follows the events and logs of this node's ranks; ``running`` and ``exits`` say how they are.

    ``spare``: where ranks write what cannot be written to ``logs``, once there is anything.

    ``alone``: there is one rank in all, and no need to name it. ``chatter``: the launcher's own log, to be shown too,
    and every traceback whole; without it consequences are summarised.
    """

    def __init__(
        self,
        logs: Path,
        events: Path,
        view: View,
        *,
        spare: Path | None = None,
        alone: bool = False,
        chatter: Path | None = None,
    ) -> None:
        self.exits: list[Exit] = []
        self.running: dict[int, int] = {}  # rank → process id, which is also its session and process group
        self.restarts = 0  # as torchrun counts them
        self.attempt = 0  # how often this node's ranks were started again, for whatever reason
        self.muted = False  # after an interrupt each rank would show where it was: the logs have it
        # What an earlier attempt left in them has been shown.
        self._before = {path: size_of(path) for path in logs.glob("rank-*")}
        self._folder, self._spare, self._view = logs, spare, view
        self._events = [Tail(events, size_of(events))]
        if spare is not None:
            self._events.append(Tail(spare / events.name))
        self._alone, self._chatter = alone, Tail(chatter, size_of(chatter)) if chatter else None
        self._tails: dict[tuple[int, str], list[Tail]] = {}
        self._started: set[int] = set()
        self._blocks: dict[int, _Block] = {}

    @property
    def logs(self) -> Logs:
        return Logs(self._folder, self._spare)

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def poll(self) -> None:
        """Show what has come since the last call."""
        self._show_chatter()
        for tail in self._events:
            self._note(tail.read())
        now = time.monotonic()
        for (rank, stream), tails in self._tails.items():
            for tail in tails:
                self._take(rank, stream, tail.read(), now)
        self._flush(now)

    def finish(self) -> None:
        """All processes have ended: show the rest."""
        self._show_chatter()
        for tail in self._events:
            self._note(tail.rest())
        now = time.monotonic()
        for (rank, stream), tails in self._tails.items():
            for tail in tails:
                self._take(rank, stream, tail.rest(), now)
        self._flush(now, all_of_them=True)

    def _show_chatter(self) -> None:
        for line in self._chatter.rest() if self._chatter else []:
            self._view.line(None, "err", line)

    def _note(self, lines: list[str]) -> None:
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:  # a half of one, on a full disk; the whole is in the spare file
                continue
            rank: int = event["rank"]
            if event["event"] == "start":
                self._begin(rank, event["pid"], event["restarts"])
            else:
                self.running.pop(rank, None)
                self.exits.append(Exit(rank, event["code"], event["time"], self.attempt))

    def _begin(self, rank: int, pid: int, restarts: int) -> None:
        if rank in self._started or restarts > self.restarts:
            self.attempt += 1
            self._started.clear()
            self.running.clear()
        self.restarts = restarts
        self._started.add(rank)
        self.running[rank] = pid
        for stream in ("out", "err"):
            path = self._folder / f"rank-{rank}.{stream}"
            tails = [Tail(path, self._before.get(path, 0))]
            tails += [Tail(self._spare / path.name)] if self._spare is not None else []
            self._tails.setdefault((rank, stream), tails)

    def _take(self, rank: int, stream: str, lines: list[str], now: float) -> None:
        for line in lines:
            if stream == "out":
                self._say(rank, stream, line)
                continue
            text = TORCH_PREFIX.sub("", line)
            block = self._blocks.get(rank)
            if block is None and TRACEBACK in text:
                block = self._blocks[rank] = _Block(rank, now, now)
            if block is not None:
                block.lines.append(text)
                block.last = now
            elif not self.muted:
                self._say(rank, stream, text)

    def _flush(self, now: float, *, all_of_them: bool = False) -> None:
        if not self._blocks:
            return
        cause = first_failure(self.exits, self.logs)
        known = cause is not None and not is_consequence(reason(cause, self.logs))
        blocks = [b for b in self._blocks.values() if all_of_them or self._complete(b, now, known)]
        ends = {e.rank: e.time for e in self.exits}
        first = cause.rank if cause is not None and known else None
        for block in sorted(
            blocks, key=lambda b: (b.rank != first, b.is_consequence(), ends.get(b.rank, inf), b.began)
        ):
            del self._blocks[block.rank]
            if not self.muted:
                self._show(block, first)

    def _complete(self, block: _Block, now: float, cause_known: bool) -> bool:
        # Events are read before logs: who has ended has said everything.
        if block.rank in self.running and now - block.last < _QUIET:
            return False
        return cause_known or not block.is_consequence() or now - block.began >= _HELD

    def _show(self, block: _Block, first: int | None) -> None:
        lines = block.lines
        if self._chatter is None and first not in (None, block.rank) and block.is_consequence():
            log = self._folder / f"rank-{block.rank}.err"
            lines = [f"{last_exception(lines)} (after rank {first} failed; the whole traceback is in {log})"]
        for line in lines:
            self._say(block.rank, "err", line)

    def _say(self, rank: int, stream: str, line: str) -> None:
        self._view.line(None if self._alone else rank, stream, line)
