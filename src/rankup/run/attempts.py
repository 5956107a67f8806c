"""The attempts of a run of ``rankup run``, read: does the last one live, how did it end, what was saved last?"""

from __future__ import annotations

import json
import signal

from rankup.core.rundir import RunDir
from rankup.run.markers import ATTEMPTS, Markers, read_markers
from rankup.schedulers.local.process import elsewhere, find
from rankup.snapshots.layout import Entry, entries, trainings


def attempts(run: RunDir) -> list[list[str]]:
    """The words of each line of ``attempts``."""
    try:
        lines = (run.path / ATTEMPTS).read_text().splitlines()
    except OSError:
        return []
    return [line.split() for line in lines]


def living_process(run: RunDir) -> str:
    """The process of the run's last attempt, if it has not ended; it may be one of another machine. "" if it has."""
    if read_markers(run.path).final:
        return ""
    last = next((words[1] for words in reversed(attempts(run)) if len(words) > 1), "")
    return last if last and (elsewhere(last) or find(last)) else ""


def end_reason(run: RunDir, traces: Markers) -> str:
    """In a line, how the last attempt of a run ended that is not done."""
    if traces.outcome == "requeue":
        return "asked to stop, and saved"
    if traces.exit_code is None:
        return "cancelled" if traces.outcome == "cancelled" else "killed, or its machine went down"
    if traces.exit_code > 128:
        return f"ended by {signal.Signals(traces.exit_code - 128).name}"
    try:
        said = json.loads((run.path / "outcome.json").read_text()).get("message", "")
    except (OSError, ValueError):
        said = ""
    return said or f"exit code {traces.exit_code}"


def newest_snapshot(run: RunDir) -> Entry | None:
    """The snapshot that was saved last, of any training of the run; it is not verified here."""
    try:
        found = [ours[-1] for root in trainings(run.path / "snapshots") if (ours := entries(root))]
        return max(found, key=lambda entry: entry.path.stat().st_mtime_ns, default=None)
    except OSError:  # deleted meanwhile
        return None
