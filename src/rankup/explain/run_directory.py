"""What the directory of a run tells besides its logs: which rank failed first, and how each of them ended."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from rankup.explain.events import Ending, Quote
from rankup.run.failure import Exit
from rankup.run.markers import read_markers

# What a run of `rankup run` prints besides its ranks.
_OTHERS = ("torchrun*.err", "agents.out", "agents.err", "node-*.log", "node-*.err")


@dataclass(frozen=True)
class RunFacts:
    """``logs`` to read; ``endings`` of the last attempt's ranks; ``left``: those that ended with 0 before the first of
    them; ``failed``: the run is known to have failed; ``done``: it is known to have come to its end."""

    logs: tuple[Path, ...]
    endings: tuple[Ending, ...] = ()
    left: tuple[Ending, ...] = ()
    failed_rank: int | None = None
    failed: bool = False
    done: bool = False


def read_run(logs: Path, job_logs: tuple[Path, ...], folders: tuple[Path, ...]) -> RunFacts:
    """``logs`` is the run's folder of logs, ``job_logs`` those with all that was printed, ``folders`` where the
    outcome is: the run directory, or that of each task."""
    ranks = sorted(logs.glob("rank-*.err")) + sorted(logs.glob("rank-*.out"))
    others = [path for pattern in _OTHERS for path in sorted(logs.glob(pattern))]
    ended = [ending for path in sorted(logs.glob("events*.jsonl")) for ending in _endings(path)]
    endings = tuple(ending for ending in ended if ending.exit.code != 0)
    began = min((ending.exit.time for ending in endings), default=0.0)
    left = tuple(ending for ending in ended if ending.exit.code == 0 and ending.exit.time < began)
    paths = (*ranks, *others) if ranks else (*(path for path in job_logs if path.exists()), *others)
    markers = [read_markers(folder) for folder in folders]
    failure = next((marker.failure for marker in markers if marker.failure), None)
    rank = (
        failure.rank
        if failure is not None
        else next((r for r in map(_failed_rank, folders) if r is not None), None)
    )
    words = [marker.outcome for marker in markers]
    done = bool(words) and all(word == "done" for word in words)
    return RunFacts(paths, endings, left, rank, "failed" in words, done)


def _failed_rank(folder: Path) -> int | None:
    try:
        rank = json.loads((folder / "outcome.json").read_text()).get("failed_rank")
    except (OSError, ValueError, AttributeError):
        return None
    return rank if isinstance(rank, int) else None


def _endings(path: Path) -> list[Ending]:
    """Of the last attempt: a rank that starts once more begins another one."""
    endings: dict[int, Ending] = {}
    started: set[int] = set()
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return []
    for number, line in enumerate(lines, start=1):
        try:
            event = json.loads(line)
            rank = int(event["rank"])
            if event["event"] == "start":
                if rank in started:
                    started, endings = set(), {}
                started.add(rank)
            else:
                exit = Exit(rank, int(event["code"]), float(event["time"]))
                endings[rank] = Ending(
                    exit, "", (Quote(path.name, number, line),), root=True, launcher="rankup"
                )
        except (ValueError, KeyError, TypeError):  # half a line
            continue
    return list(endings.values())
