"""Where each training of a process keeps its snapshots: found again by order, or by name, when the script runs again.

The first training that saves below a directory has it to itself; the second one has ``training-2`` in it, and one with
a name (``rankup.init(name="fold-2")``) a directory of that name. So a loop over learning rates, or folds, resumes each
of its trainings where that one was.
"""

from __future__ import annotations

import re
from pathlib import Path

from rankup.errors import RankupError

# Of this process: directory → how many trainings without a name have begun below it.
_unnamed: dict[Path, int] = {}
# Of this process: directories of trainings that were trained to their end.
_done: set[Path] = set()


def check_name(name: str) -> None:
    """RankupError where ``name`` cannot be a directory beside ``step-N``."""
    reserved = re.fullmatch(r"(step|stage|training)-.*|latest", name)
    if name and (reserved or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name)):
        raise RankupError(
            "bad-training-name",
            f"{name!r} cannot name a training",
            hint="letters, digits, '.', '_' and '-', at most 100, beginning with a letter or a digit; not step-…, "
            "stage-…, training-… or latest",
        )


def training_folder(base: Path, name: str) -> Path:
    """The directory of a training that begins now below ``base``. Call it once per training, on every rank alike."""
    base = base.absolute()
    if not name:
        number = _unnamed[base] = _unnamed.get(base, 0) + 1
        return base if number == 1 else base / f"training-{number}"
    folder = base / name
    if folder in _done:
        raise RankupError(
            "training-name-taken",
            f"a training named {name!r} has been trained to its end in this process already",
            context=str(folder),
            hint="a name of its own for each, as name=f'fold-{k}'; or no names: then their order tells them apart",
        )
    return folder


def training_done(folder: Path) -> None:
    """The training in ``folder`` has been trained to its end."""
    _done.add(folder)
