"""Whether what a job runs is there, as far as a login node can tell."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from rankup.errors import RankupError
from rankup.spec.jobspec import JobSpec


def check_program(spec: JobSpec, env: Mapping[str, str]) -> None:
    """Raises ``RankupError`` for a script that does not exist, and for a program that nothing could bring."""
    first = spec.command[0]
    if first == "-m":
        if len(spec.command) == 1:
            raise RankupError(
                "no-script", "-m needs the name of a module", hint="rankup submit -m package.module"
            )
        return  # the job's environment has it, or not
    path = spec.folder / first
    if path.exists() or (spec.container and Path(first).is_absolute()):
        return
    environment = spec.modules or spec.venv or spec.conda or spec.container or spec.pre
    is_program = "/" not in first and path.suffix != ".py"
    if is_program and (environment or shutil.which(first, path=env.get("PATH", ""))):
        return
    names = [p.name for p in path.parent.iterdir() if p.is_file()] if path.parent.is_dir() else []
    close = get_close_matches(path.name, names, n=1)
    raise RankupError(
        "script-not-found",
        f"there is no script {first!r}"
        + (f"; did you mean {str(Path(first).with_name(close[0]))!r}?" if close else ""),
        context=f"looked in {path.parent}",
    )
