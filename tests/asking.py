"""How the tests of ``rankup.spec`` ask for a job: in a folder with a script, and in an environment of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rankup.resolve.precedence import resolve
from rankup.resolve.resolved import Resolved


def ask(
    folder: Path,
    *command: str,
    site: str | None = "slurm",
    file: Path | None = None,
    environ: dict[str, str] | None = None,
    **flags: Any,
) -> Resolved:
    """Resolve ``train.py``, which is made in ``folder``, or ``command``."""
    (folder / "train.py").touch()
    if not command and file is None:
        command = ("train.py",)
    return resolve(flags, command=command, file=file, site=site, env=environ or {}, folder=folder)
