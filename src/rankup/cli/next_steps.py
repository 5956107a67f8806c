"""What ``rankup`` without a command suggests for the folder it stands in: the next command for what is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from rankup.run.markers import read_markers

_SUFFIXES = {".py", ".sh", ".bash", ".sbatch", ".slurm", ".pbs", ".job", ".sub"}
_MOST_FILES = 500  # of a folder; a folder of data is not read
_MOST_BYTES = 200_000  # of a file
_JOB = re.compile(r"^#(?:SBATCH|PBS)\s", re.MULTILINE)
_IMPORT = r"^\s*(?:import|from) {}\b"
_TORCH = re.compile(_IMPORT.format("(?:torch|lightning|accelerate|transformers)"), re.MULTILINE)
_RANKUP = re.compile(_IMPORT.format("rankup"), re.MULTILINE)
_TRAINS = re.compile(r"\.backward\(|\.fit\(|\.train\(\)|run\.(?:steps|epochs)\(")


def next_steps(folder: Path) -> list[str]:
    """Lines to print; [] where nothing is known to rankup."""
    found = [*_runs(folder / "runs"), *_files(folder)]
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
    """The first job script, and the first program that trains."""
    jobs: list[str] = []
    programs: dict[str, bool] = {}  # name → whether it uses rankup
    for path in sorted(folder.iterdir())[:_MOST_FILES]:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            continue
        text = path.read_text(errors="replace") if path.suffix in _SUFFIXES else ""
        if path.suffix == ".py" and _TORCH.search(text) and _TRAINS.search(text):
            programs[path.name] = bool(_RANKUP.search(text))
        elif _JOB.search(text):
            jobs.append(path.name)
    for name in jobs[:1]:
        yield f"rankup check {name}", "mistakes in the job script and its program"
        yield f"rankup rehearse {name}", "run it without a queue"
    for name, ours in list(programs.items())[:1]:
        yield f"rankup run --nproc-per-node auto {name}", "run it on all devices of this machine"
        yield f"rankup verify {name}", "kill and resume it, compare every step"
        if not ours:
            yield f"rankup check {name}", "what breaks on several processes"
