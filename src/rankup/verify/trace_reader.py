"""Reads the traces of one attempt's ranks (``runtime/tracing/trace.py`` writes them)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankup.core.records import read_records

Record = dict[str, Any]
SEVERAL = "several"  # the file of a second training of one rank (``runtime/tracing/any_script.py``)
FROZEN = "frozen"  # the file that a rank leaves before it freezes (``runtime/tracing/fault_injection.py``)
FINAL_STATE = "final-state.pt"  # the numbers with which the script ended (``runtime/tracing/final_state.py``)


@dataclass(frozen=True)
class AttemptTrace:
    """The trace of one attempt, by rank. Steps count over all attempts, from 1."""

    folder: Path
    begin: dict[int, Record]
    steps: dict[int, dict[int, Record]]  # step → rank → record
    end: dict[int, Record]  # the end of the last loop; empty if the attempt was interrupted
    # The end of the interpreter; empty if it did not end normally.
    exit: dict[int, Record] = field(default_factory=dict)
    epochs: tuple[Record, ...] = ()  # of rank 0, like the next fields
    behind: tuple[Record, ...] = ()
    frozen: str = ""  # the kind of interruption that froze it
    starts: dict[int, Record] = field(default_factory=dict)  # of rank 0: step → where a loop began after it
    printed: tuple[str, ...] = ()  # the last lines that rank 0 printed
    lost: tuple[str, ...] = ()  # what rankup printed about state that was lost

    @property
    def world_size(self) -> int:
        return int(self.begin[0]["world_size"])

    @property
    def any_world(self) -> bool:
        """Whether the training must be the same, bit for bit, on any number of processes."""
        return bool(self.begin[0].get("exact") == "any-world")

    @property
    def any_script(self) -> bool:
        """Whether the steps are those of optimizers, in a script without ``run.steps``."""
        return bool(self.begin[0].get("any_script"))

    @property
    def restored(self) -> str:
        """Of any script: what a resumed process began with, ``state``, ``weights`` or ``nothing`` that was before."""
        return str(self.begin[0].get("restored", ""))

    @property
    def resumed_at(self) -> int:
        """The step of the snapshot from which the attempt resumed; 0 if it started without one."""
        return int(self.begin[0]["step"])

    @property
    def last(self) -> int:
        """The last step that all ranks have traced; without one, the step of the resume."""
        whole = (step for step, ranks in self.steps.items() if len(ranks) == self.world_size)
        return max(whole, default=self.resumed_at)

    @property
    def ended(self) -> bool:
        """Whether every rank's interpreter ended normally."""
        return len(self.exit) == self.world_size

    @property
    def final_step(self) -> int:
        """The last step of all, including one that a ``break`` left."""
        ends = [*self.end.values(), *self.exit.values()]
        return max([self.last, *(int(record["step"]) for record in ends)])

    @property
    def resumed_epoch(self) -> int:
        """The epoch in which the attempt resumed, from 0."""
        return max((int(epoch) for epoch, _ in self.begin[0].get("at", ())), default=0)


def read_attempt(folder: Path) -> AttemptTrace | None:
    """None if the attempt ended before its first step began on rank 0."""
    begin: dict[int, Record] = {}
    steps: dict[int, dict[int, Record]] = {}
    ends: dict[str, dict[int, Record]] = {"end": {}, "exit": {}}
    marks: dict[str, list[Record]] = {"epoch": [], "behind": []}
    starts: dict[int, Record] = {}
    for path in folder.glob("rank-*.jsonl"):
        matched = re.fullmatch(r"rank-(\d+)\.jsonl", path.name)
        if matched is None:
            continue
        rank = int(matched[1])
        trained = False
        for record in read_records(path):
            kind = record["kind"]
            if kind == "begin" and rank == 0:
                starts[record["step"]] = record
            if kind == "begin" and not trained:
                begin[rank] = (
                    record  # several: a training that an earlier attempt has finished also writes one
                )
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
            starts,
        )
        if 0 in begin
        else None
    )
