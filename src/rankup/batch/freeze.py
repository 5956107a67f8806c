"""The code of a run, as it was at the submit: ``code/`` in the run directory, and what it is, ``code.json``.

Of a git repository the whole working tree is copied: commit, uncommitted changes, and untracked files that are not
ignored. Of any other folder, all files in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from rankup.core import shell
from rankup.core.files import write_atomic
from rankup.core.rundir import RunDir
from rankup.core.units import size
from rankup.errors import RankupError
from rankup.spec.jobspec import JobSpec

LIMIT_MIB = 100
_GIT_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class FrozenCode:
    """``root`` was copied. ``commit`` is "" without git, and ``dirty`` says whether its files were changed since.

    ``sha256`` is that of the list of all files as ``sha256sum`` prints it.
    """

    root: str
    commit: str
    dirty: bool
    sha256: str
    files: int

    def __str__(self) -> str:
        changed = ", with changes" if self.dirty else ""
        commit = f"commit {self.commit[:12]}{changed}, " if self.commit else ""
        return f"frozen: {commit}{self.files} files, sha256 {self.sha256[:12]}"


def read_frozen(run: RunDir) -> FrozenCode | None:
    """What was frozen for the run; None if its code is not."""
    try:
        return FrozenCode(**json.loads((run.path / "code.json").read_text()))
    except FileNotFoundError:
        return None


def frozen_job(spec: JobSpec, run: RunDir) -> JobSpec:
    """The same job in the frozen copy of its folder, if it asks for that."""
    if not spec.freeze:
        return spec
    frozen = read_frozen(run)
    root = Path(frozen.root) if frozen else _root(spec.folder)
    folder = run.path / "code" / spec.folder.resolve().relative_to(root)
    return spec.model_copy(update={"folder": folder})


def freeze(spec: JobSpec, run: RunDir) -> None:
    """Copy the code, unless an attempt before this one has. Raises ``RankupError`` if it cannot be frozen."""
    if not spec.freeze or read_frozen(run) is not None:
        return
    root, code = _root(spec.folder), run.path / "code"
    runs = spec.runs_root.resolve()
    paths = sorted(path for path in _files(root) if not path.is_relative_to(runs))
    _check_size(root, paths)
    shutil.rmtree(code, ignore_errors=True)  # of a submit that was killed
    lines = []
    for path in paths:
        place = code / path.relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, place, follow_symlinks=False)
        content = os.fsencode(path.readlink()) if path.is_symlink() else place.read_bytes()
        lines.append(f"{hashlib.sha256(content).hexdigest()}  {path.relative_to(root)}\n")
    _check_script(spec, run)
    commit = _git(root, "rev-parse", "HEAD").strip()
    digest = hashlib.sha256(os.fsencode("".join(lines))).hexdigest()
    frozen = FrozenCode(str(root), commit, bool(_git(root, "status", "--porcelain")), digest, len(paths))
    write_atomic(run.path / "code.json", json.dumps(asdict(frozen), indent=1) + "\n", mode=0o600)


def _git(folder: Path, *words: str) -> str:
    """What git prints; "" if it fails, or if there is no git."""
    done = shell.run(["git", "-C", str(folder), *words], timeout=_GIT_TIMEOUT_S)
    return done.out if done.code == 0 else ""


def _root(folder: Path) -> Path:
    """The repository that holds ``folder``, else the folder itself."""
    return Path(_git(folder, "rev-parse", "--show-toplevel").rstrip("\n") or folder).resolve()


def _files(root: Path) -> Iterator[Path]:
    """The files of a repository, and of those in it; of any other folder all that are not made from others."""
    listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if not listed:
        for place, folders, names in os.walk(root):
            folders[:] = [name for name in folders if name not in (".git", "__pycache__")]
            if "pyvenv.cfg" in names:  # a virtual environment
                folders.clear()
            else:
                yield from (Path(place, name) for name in names)
    for name in listed.split("\0"):
        path = root / name
        if name and path.is_dir() and not path.is_symlink():
            yield from _files(path)
        elif name and os.path.lexists(path):  # tracked, and not deleted
            yield path


def _check_size(root: Path, paths: list[Path]) -> None:
    sizes = {path: path.lstat().st_size for path in paths}
    if (total := sum(sizes.values())) > LIMIT_MIB << 20:
        largest = max(sizes, key=lambda path: sizes[path])
        raise RankupError(
            "too-much-to-freeze",
            f"the code in {str(root)!r} has {total >> 20} MiB, and at most {LIMIT_MIB} MiB are frozen",
            context=f"the largest file: {largest.relative_to(root)}, {size(sizes[largest] >> 20 or 1)}",
            hint="move data out of it, or let git ignore it (.gitignore); or submit with --no-freeze",
        )


def _check_script(spec: JobSpec, run: RunDir) -> None:
    """A script that the copy lacks would run from its old place, or not at all."""
    live, copy = spec.folder / spec.command[0], frozen_job(spec, run).folder / spec.command[0]
    if live.is_file() and not (copy.is_file() and copy.resolve().is_relative_to(run.path.resolve() / "code")):
        raise RankupError(
            "script-not-frozen",
            f"the script {spec.command[0]!r} is not in the frozen code",
            context=str(run.path / "code"),
            hint="name it by a path below the job's folder, and do not let git ignore it; or --no-freeze",
        )
