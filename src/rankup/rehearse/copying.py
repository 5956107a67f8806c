"""A copy of the job's folder, for a script that may change it. Large files are left out."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

MOST_OF_ALL = 256 << 20
MOST_OF_ONE = 32 << 20
_SKIPPED = frozenset({".git", "__pycache__", ".venv", "venv", "node_modules", "wandb"})


def copy_folder(source: Path, target: Path) -> list[str]:
    """Copy ``source`` to ``target``; what was left out, relative to ``source``."""
    left_out: list[str] = []
    total = 0
    for folder, folders, files in os.walk(source):
        here = Path(folder)
        inside = here.relative_to(source)
        left_out += [str(inside / name) + "/" for name in folders if name in _SKIPPED]
        folders[:] = [name for name in folders if name not in _SKIPPED and not (here / name).is_symlink()]
        (target / inside).mkdir(parents=True, exist_ok=True)
        for name in files:
            path = here / name
            try:
                size = path.lstat().st_size
                if size > MOST_OF_ONE or total + size > MOST_OF_ALL:
                    left_out.append(str(inside / name))
                    continue
                total += size
                shutil.copy2(path, target / inside / name, follow_symlinks=False)
            except OSError:
                left_out.append(str(inside / name))
    return left_out
