"""What the ranks of one attempt have traced (``runtime/tracing/trace.py`` writes it)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankup.core.records import read_records

Record = dict[str, Any]
FROZEN = "frozen"  # the file that a rank leaves before it freezes (``runtime/tracing/fault_injection.py``)


@dataclass(frozen=True)
class AttemptTrace:
    """From one start of a run to its end, however it ended. Records by rank; steps count over all attempts, from 1."""

    folder: Path
    begin: dict[int, Record]
    steps: dict[int, dict[int, Record]]  # step → rank → record
    end: dict[int, Record]  # of the last loop, however it ended; empty where an interruption ended it
    exit: dict[int, Record] = field(
        default_factory=dict
    )  # as the interpreter ended; empty where it did not end well
    epochs: tuple[Record, ...] = ()  # of rank 0, as is what follows
    behind: tuple[Record, ...] = ()
    frozen: str = ""  # the kind of interruption that froze it

    @property
    def world_size(self) -> int:
        return int(self.begin[0]["world_size"])

    @property
    def any_world(self) -> bool:
        """Whether it is to be the same, bit for bit, on any number of processes."""
        return bool(self.begin[0].get("exact") == "any-world")

    @property
    def resumed_at(self) -> int:
        """The step of the snapshot that it went on from; 0 where it began anew."""
        return int(self.begin[0]["step"])

    @property
    def last(self) -> int:
        """The last step that all ranks have traced; where it went on from if there is none."""
        whole = (step for step, ranks in self.steps.items() if len(ranks) == self.world_size)
        return max(whole, default=self.resumed_at)

    @property
    def ended(self) -> bool:
        """Whether every rank's interpreter came to its own end."""
        return len(self.exit) == self.world_size

    @property
    def final_step(self) -> int:
        """The last step of all; one that a break left counts, too."""
        ends = [*self.end.values(), *self.exit.values()]
        return max([self.last, *(int(record["step"]) for record in ends)])

    @property
    def resumed_epoch(self) -> int:
        """The epoch that it went on in, from 0."""
        return max((int(epoch) for epoch, _ in self.begin[0].get("at", ())), default=0)


def read_attempt(folder: Path) -> AttemptTrace | None:
    """None where the attempt ended before its first step could begin on rank 0."""
    begin: dict[int, Record] = {}
    steps: dict[int, dict[int, Record]] = {}
    ends: dict[str, dict[int, Record]] = {"end": {}, "exit": {}}
    marks: dict[str, list[Record]] = {"epoch": [], "behind": []}
    for path in folder.glob("rank-*.jsonl"):
        matched = re.fullmatch(r"rank-(\d+)\.jsonl", path.name)
        if matched is None:
            continue
        rank = int(matched[1])
        trained = False
        for record in read_records(path):
            kind = record["kind"]
            if kind == "begin" and not trained:
                begin[rank] = record  # a training that an earlier attempt has finished begins at its end
            elif kind == "step":
                trained = True
                steps.setdefault(record["step"], {})[rank] = record
            elif kind in ("end", "left", "exit"):
                ends["exit" if kind == "exit" else "end"][rank] = record
            elif kind in marks and rank == 0:
                marks[kind].append(record)
    frozen = folder / FROZEN
    return (
        AttemptTrace(
            folder,
            begin,
            steps,
            ends["end"],
            ends["exit"],
            tuple(marks["epoch"]),
            tuple(marks["behind"]),
            frozen.read_text().strip() if frozen.exists() else "",
        )
        if 0 in begin
        else None
    )
