"""A run on disk: ``runs/<name>/<id>/``, for its owner's eyes only.

| path | what |
|---|---|
| ``job.toml`` | the job as resolved, with the origin of each value |
| ``job.sh`` | the command, as plain bash |
| ``logs/rank-R.out``, ``logs/rank-R.err`` | what each rank printed |
| ``records/*.jsonl`` | steps, epochs, summary: one JSON object per line |
| ``STOP`` | a request to stop: one line, reason and deadline in epoch seconds |
| ``listening`` | there while the ranks take SIGTERM for a request to stop |
| ``error.json`` | what a rank of ours could not do, for the command line to say once |
| ``outcome``, ``outcome.json`` | one word for bash (done, requeue, failed, cancelled), and the details |
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankup.core.files import make_folder, write_atomic
from rankup.errors import RankupError

RUN_DIR_VARIABLE = "RANKUP_RUN_DIR"
# Set for processes whose starter shows the progress, or wants none: they show none of their own.
PROGRESS_VARIABLE = "RANKUP_PROGRESS"
LONGEST_NAME = 200  # characters: file systems take 255 bytes, PBS 230
OUTCOMES = ("done", "requeue", "failed", "cancelled")


def default_name(command: tuple[str, ...]) -> str:
    """A name for the run of ``command``: the script's, or the last part of the module's."""
    first = (
        command[1].rpartition(".")[2] if command[0] == "-m" and len(command) > 1 else Path(command[0]).stem
    )
    return re.sub(r"[^A-Za-z0-9._-]", "-", first).lstrip("._-")[:LONGEST_NAME] or "run"


def progress_is_shown_elsewhere(env: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is told not to show its progress."""
    return env.get(PROGRESS_VARIABLE) == "off"


def run_directory() -> Path | None:
    """The run directory of this process under ``rankup run`` and ``rankup submit``, else None."""
    run = RunDir.from_environment()
    return None if run is None else run.path


@dataclass(frozen=True)
class RunDir:
    """Where one execution keeps everything. ``path`` is absolute."""

    path: Path

    @classmethod
    def create(cls, root: Path, name: str, *, parts: Sequence[str] = ("logs", "records")) -> RunDir:
        """A fresh run directory below ``root``, with the folders ``parts``; its id sorts by time."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise RankupError(
                "bad-run-name",
                f"{name!r} cannot name a run",
                hint="letters, digits, '.', '_' and '-', beginning with a letter or a digit",
            )
        if len(name) > LONGEST_NAME:
            raise RankupError(
                "bad-run-name",
                f"a run's name has at most {LONGEST_NAME} characters, and this one has {len(name)}",
                context=name,
                hint="--name NAME gives it a shorter one",
            )
        make_folder(root, purpose="runs directory")
        path = _fresh(make_folder(root.absolute() / name, mode=0o700, purpose="run directory"))
        for part in parts:
            make_folder(path / part, mode=0o700, purpose="run directory")
        return cls(path)

    @classmethod
    def from_environment(cls, env: Mapping[str, str] = os.environ) -> RunDir | None:
        """The run that this process belongs to, if a launcher of ours said so."""
        value = env.get(RUN_DIR_VARIABLE)
        return cls(Path(value)) if value else None

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def records(self) -> Path:
        return self.path / "records"

    @property
    def stop_file(self) -> Path:
        return self.path / "STOP"

    @property
    def listening(self) -> Path:
        """There while rank 0 listens for SIGTERM: it will save, and needs a moment for that."""
        return self.path / "listening"

    def stop_request(self) -> str | None:
        """The line in ``STOP``: why, and until when (epoch seconds); None where nobody asks to stop."""
        try:
            return self.stop_file.read_text().strip()
        except FileNotFoundError:
            return None

    def leave_error(self, error: RankupError) -> None:
        """Leave ``error`` for the command line; the first rank's stays, since all ranks make the same mistake."""
        with contextlib.suppress(FileExistsError), (self.path / "error.json").open("x") as file:
            file.write(json.dumps(error.as_dict()) + "\n")

    def left_error(self) -> RankupError | None:
        """What ``leave_error`` left."""
        path = self.path / "error.json"
        return RankupError.from_dict(json.loads(path.read_text())) if path.exists() else None

    def write_outcome(self, word: str, details: Mapping[str, Any]) -> None:
        """The details first, then the word: a reader of the word finds the details."""
        assert word in OUTCOMES, word
        write_atomic(self.path / "outcome.json", json.dumps(dict(details), indent=2) + "\n", mode=0o600)
        write_atomic(self.path / "outcome", word + "\n", mode=0o600)

    def outcome(self) -> str | None:
        """The word in ``outcome``, or None while the run has not ended."""
        path = self.path / "outcome"
        return path.read_text().strip() if path.exists() else None


def _fresh(folder: Path) -> Path:
    """A new directory in ``folder``: of two runs that begin in the same second, each has its own."""
    while True:
        path = folder / (time.strftime("%Y%m%d-%H%M%S") + "-" + secrets.token_hex(2))
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            continue
        except OSError as error:
            raise RankupError(
                "unwritable-directory",
                f"cannot make the run directory {str(path)!r}: {error.strerror}",
                hint="choose a directory that you may write to: --runs-root DIR",
            ) from error
        path.chmod(0o700)
        return path
