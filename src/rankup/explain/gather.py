"""From log files to facts: one pass over each file, with memory for what was found only."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from rankup.explain.events import Facts
from rankup.explain.log_reader import LogReader
from rankup.explain.reading import LogFile


def gather(files: Sequence[LogFile]) -> Facts:
    """What the logs of a job say."""
    facts = Facts()
    order = itertools.count()
    for file in files:
        reader = LogReader(file, order)
        reader.read()
        facts.events += reader.events
        facts.endings += reader.endings
        facts.watchdog += reader.stuck
        facts.suspects += reader.suspects
        facts.last.append((reader.rank, reader.last_words()))
        facts.ranks |= reader.ranks
        facts.ranks |= {ending.exit.rank for ending in reader.endings if ending.launcher == "torchrun"}
        if file.skipped:
            facts.notes.append(f"{file.name}: {file.skipped >> 20} MB in its middle were not looked at")
        if file.trouble:
            facts.notes.append(f"{file.name}: {file.trouble}")
    return facts
