"""What the ranks of one attempt have traced (``runtime/trace.py`` writes it)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankup.core.records import read_records

Record = dict[str, Any]


@dataclass(frozen=True)
class Attempt:
    """From one start of a run to its end, however it ended. Records by rank; steps count over all attempts, from 1."""

    folder: Path
    begin: dict[int, Record]
    steps: dict[int, dict[int, Record]]  # step → rank → record
    end: dict[int, Record]  # empty where the run did not train its last epoch

    @property
    def world_size(self) -> int:
        return int(self.begin[0]["world_size"])

    @property
    def any_world(self) -> bool:
        """Whether it is to be the same, bit for bit, on any number of processes."""
        return bool(self.begin[0].get("strategy") == "any-world")

    @property
    def resumed_at(self) -> int:
        """The step of the snapshot that it went on from; 0 where it began anew."""
        return int(self.begin[0]["step"])

    @property
    def last(self) -> int:
        """The last step that all ranks have traced; where it went on from if there is none."""
        whole = (step for step, ranks in self.steps.items() if len(ranks) == self.world_size)
        return max(whole, default=self.resumed_at)


def read_attempt(folder: Path) -> Attempt | None:
    """None where the attempt ended before its first step could begin on rank 0."""
    begin: dict[int, Record] = {}
    steps: dict[int, dict[int, Record]] = {}
    end: dict[int, Record] = {}
    for path in folder.glob("rank-*.jsonl"):
        matched = re.fullmatch(r"rank-(\d+)\.jsonl", path.name)
        if matched is None:
            continue
        rank = int(matched[1])
        for record in read_records(path):
            if record["kind"] == "begin":
                begin.setdefault(rank, record)
            elif record["kind"] == "step":
                steps.setdefault(record["step"], {})[rank] = record
            else:
                end[rank] = record
    return Attempt(folder, begin, steps, end) if 0 in begin else None
