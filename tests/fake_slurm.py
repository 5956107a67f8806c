"""sbatch, squeue and scancel as little bash scripts on PATH, and a queue that the test writes itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

RECORD, FIELD = "\x1e", "\x1f"

SBATCH = """
echo "sbatch $*" >>"$HERE/calls"
[ -e "$HERE/refuses" ] && { cat "$HERE/refuses" >&2; exit 1; }
ident=$(($(cat "$HERE/last") + 1))
echo $ident >"$HERE/last"
pwd >"$HERE/cwd"
env >"$HERE/env"
ls -A "$(dirname "${@: -1}")" >"$HERE/saw"
[ -e "$HERE/hangs" ] && { echo "sbatch: error: Batch job submission failed: Socket timed out" >&2; exit 1; }
echo $ident
"""
SQUEUE = """
echo "squeue $*" >>"$HERE/calls"
[ -e "$HERE/down" ] && { echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1; }
[ -e "$HERE/frozen" ] && exec sleep 60
cat "$HERE/queue" 2>/dev/null || exit 0
"""
SCANCEL = """
echo "scancel $*" >>"$HERE/calls"
[ -e "$HERE/keeps" ] && { echo "scancel: error: Kill job error on job id 1: Access/permission denied" >&2; exit 1; }
exit 0
"""
FORGOTTEN = 'echo "$(basename "$0"): error: not here" >&2; exit 1\n'


class FakeSlurm:
    """``sets`` writes what squeue will answer; ``calls`` are the commands that came, one per line."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder / "slurm"
        self.folder.mkdir()
        programs = {"sbatch": SBATCH, "squeue": SQUEUE, "scancel": SCANCEL}
        programs |= {"sacct": FORGOTTEN, "scontrol": FORGOTTEN}
        self.stand_ins(programs)
        (self.folder / "last").write_text("100\n")
        monkeypatch.setenv("PATH", f"{self.folder}:{os.environ['PATH']}")

    def stand_ins(self, programs: Mapping[str, str]) -> None:
        """Programs on PATH, by name: bash that finds the folder in HERE."""
        for name, text in programs.items():
            path = self.folder / name
            path.write_text(f"#!/bin/bash\nHERE={self.folder}\n{text}")
            path.chmod(0o755)

    def sets(self, *jobs: tuple[str, str, str]) -> None:
        """``(id, STATE, reason)`` of each job that squeue lists; those that run do so on node1."""
        records = [
            RECORD
            + FIELD.join((i, state, reason, "gpu", "node1" if state == "RUNNING" else "", "1:05", "mine"))
            + "\n"
            for i, state, reason in jobs
        ]
        (self.folder / "queue").write_text("".join(records))

    def has(self, name: str, text: str = "") -> None:
        """``refuses``, ``hangs`` (sbatch), ``down``, ``frozen`` (the controller), ``keeps`` (scancel is denied)."""
        (self.folder / name).write_text(text)

    def calls(self, name: str) -> list[str]:
        path = self.folder / "calls"
        lines = (
            path.read_text().split("\n") if path.exists() else []
        )  # the separators end lines to splitlines
        return [line for line in lines if line.startswith(name)]

    def said(self, name: str) -> str:
        return (self.folder / name).read_text()
