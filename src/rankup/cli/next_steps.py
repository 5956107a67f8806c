"""What ``rankup`` without a command suggests for the folder it stands in: the next command for what is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from rankup.check.inputs import has_directives, imports_training, kind_of, read_document
from rankup.check.paths import trains_alone
from rankup.errors import RankupError
from rankup.run.markers import read_markers

_MOST_FILES = 500  # of a folder; a folder of data is not read
_MOST_BYTES = 200_000  # of a file
_RANKUP = re.compile(r"^\s*(?:import|from)\b.*\brankup\b", re.MULTILINE)
_TRAINS = re.compile(r"\.backward\(|\.fit\(|\.train\(\)|run\.(?:steps|epochs)\(")


def next_steps(folder: Path) -> list[str]:
    """Lines to print; [] where nothing is known to rankup."""
    try:
        found = [*_runs(folder / "runs"), *_files(folder)]
    except OSError:  # the folder may not be read, or is gone
        return []
    return ["", "Here:", *(f"  {command:<46}  {why}" for command, why in found)] if found else []


def _runs(root: Path) -> Iterator[tuple[str, str]]:
    """The latest run, if it has failed or was asked to stop."""
    runs = sorted(root.glob("*/*/job.toml"), key=lambda path: path.parent.name)
    if not runs:
        return
    folder = runs[-1].parent
    outcome, run = read_markers(folder).outcome, folder.relative_to(root.parent)
    if outcome == "failed":
        yield f"rankup explain {run}", "why the latest run failed"
    if outcome in ("failed", "requeue") and next((folder / "snapshots").glob("step-*"), None):
        yield f"rankup run --resume {run}", "go on from its last snapshot"


def _files(folder: Path) -> Iterator[tuple[str, str]]:
    """The first job script, the first program that trains, and the job.toml."""
    job, program = "", ""
    for path in sorted(folder.iterdir())[:_MOST_FILES]:
        kind, text = _read(path)
        if kind == "job" and has_directives(text):
            job = job or path.name
        elif kind == "program" and imports_training(text) and _TRAINS.search(text) and not program:
            program, ours = path.name, bool(_RANKUP.search(text))
    if job:
        yield f"rankup check {job}", "mistakes in the job script and its program"
        yield f"rankup rehearse {job}", "run it without a queue"
    if program:
        if not ours:
            yield f"rankup check {program}", "mistakes in it, also between its ranks"
        if ours or not trains_alone(folder / program):
            yield f"rankup run --nproc-per-node auto {program}", "run it on all devices of this machine"
        yield f"rankup verify {program}", "kill and resume it, compare every step"
    if (folder / "job.toml").is_file():
        yield "rankup render job.toml", "the script of this job"
        yield "rankup submit job.toml", "submit it"
    elif program:
        yield f"rankup new {program}", "describe a job for a cluster, as job.toml"


def _read(path: Path) -> tuple[str, str]:
    """What `rankup check` takes the file for, and its text; "" for what is none of these, or cannot be read."""
    try:
        document = read_document(path) if path.is_file() and path.stat().st_size <= _MOST_BYTES else None
    except (OSError, RankupError):
        return "", ""
    return (kind_of(document)[0], document.text) if document is not None else ("", "")
