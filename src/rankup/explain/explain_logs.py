"""From the paths of logs to an explanation: one pass over each file, with memory for what was found only."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rankup.errors import RankupError
from rankup.explain.cascade import survived_lines
from rankup.explain.events import Facts, Quote
from rankup.explain.explanation import Explanation
from rankup.explain.judge import explain, open_end
from rankup.explain.log_reader import LogReader
from rankup.explain.reading import LogFile
from rankup.explain.run_directory import RunFacts

_MOST_FILES = 4096


class Reading(NamedTuple):
    """Why the job failed, or None; notes on what could not be read; and the last line of logs that show neither a
    failure nor an end of the job, which may hang."""

    failure: Explanation | None
    notes: list[str]
    last: Quote | None


def explain_logs(paths: Sequence[Path]) -> tuple[Explanation | None, list[str]]:
    """(why the job failed, or None; notes on what could not be read). A folder stands for the files in it.

    Raises ``RankupError`` if none of the files can be read.
    """
    return explain_run(RunFacts(tuple(paths)))[:2]


def explain_run(run: RunFacts) -> Reading:
    """The same with what the directory of a run tells. If it is done, what its attempts have survived is no failure."""
    if run.done:
        return Reading(None, ["the run is done"], None)
    files = [LogFile(path, name) for path, name in _named(run.logs)]
    facts = _gather(files)
    facts.endings = list(run.endings) or facts.endings
    facts.left = list(run.left)
    facts.failed_rank, facts.failed = run.failed_rank, run.failed
    facts.ranks |= {ending.exit.rank for ending in run.endings}
    if all(file.trouble and file.empty for file in files):
        one = f"the log cannot be read: {files[0].trouble}"
        raise RankupError(
            "no-log",
            "none of the logs can be read" if len(files) > 1 else one,
            context=", ".join(str(file.path) for file in files[:4]),
            hint="give the files that the job printed to, or a run: `rankup status` lists them",
        )
    found = explain(facts)
    if found is not None:
        return Reading(found, facts.notes, None)
    return Reading(None, [*survived_lines(facts), *facts.notes], open_end(facts))


def _named(paths: Sequence[Path]) -> list[tuple[Path, str]]:
    """Each file once, with a name that tells it from the others."""
    found: list[Path] = []
    for path in paths:
        found += sorted(p for p in path.rglob("*") if p.is_file())[:_MOST_FILES] if path.is_dir() else [path]
    if not found:
        raise RankupError(
            "no-log",
            "there is no log here",
            context=", ".join(map(str, paths)),
            hint="give the files that the job printed to: `rankup status` shows whether it has started",
        )
    unique = list(dict.fromkeys(found))
    names = [path.name for path in unique]
    return [(path, path.name if names.count(path.name) == 1 else str(path)) for path in unique]


def _gather(files: Sequence[LogFile]) -> Facts:
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
