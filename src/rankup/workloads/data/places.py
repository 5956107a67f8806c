"""Finds data sets on this machine, or fetches them.

A data set is found by its name in ``$RANKUP_DATA/<name>``, where Debian installs it, and in the cache
``~/.cache/rankup/data/<name>`` (``$XDG_CACHE_HOME`` is respected), in this order.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from rankup.errors import RankupError
from rankup.workloads.data.catalog import (
    DATASETS,
    DIGITS,
    DIGITS_FOLDER,
    IDX,
    Layout,
    dataset,
    layout_of,
    names,
)
from rankup.workloads.data.fetch import Progress, fetch


def home(name: str, env: Mapping[str, str] = os.environ) -> Path:
    """The directory into which the data set ``name`` is fetched if none is given."""
    if root := env.get("RANKUP_DATA"):
        return Path(root).expanduser() / name
    cache = env.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "rankup" / "data" / name


def locate(name: str, env: Mapping[str, str] = os.environ) -> Path | None:
    """The directory that holds the files of the data set ``name``; None if this machine has none."""
    if name == DIGITS:
        return DIGITS_FOLDER
    cache = {key: value for key, value in env.items() if key != "RANKUP_DATA"}
    for root in (home(name, env), dataset(name).debian_folder, home(name, cache)):
        if root and (folders := _complete_folders(root, layout_of(name))):
            return folders[0]
    return None


def is_present(source: str) -> bool:
    """Whether ``source`` can be read without a download. A directory never needs one."""
    return locate(source) is not None if source in (DIGITS, *DATASETS) else True


def find_or_fetch(source: str, layout: Layout = IDX, *, progress: Progress | None = None) -> Path:
    """The directory with the files of ``source``, a directory in ``layout`` or a name. A name is fetched if needed."""
    if source not in (DIGITS, *DATASETS):
        return find_files(source, layout)
    if layout_of(source) is not layout:
        raise RankupError(
            "other-data",
            f"this workload does not read {source}",
            context=f"--data {source}",
            hint=_choices(layout),
        )
    found = locate(source)
    if found is None:
        found = home(source)
        fetch(source, found, progress=progress)
    return found


def find_files(directory: str, layout: Layout = IDX) -> Path:
    """``directory``, or the folder below it that holds the files of ``layout``. An error names missing files."""
    root = Path(directory)
    folders = _complete_folders(root, layout)
    if not root.is_dir():
        if os.sep not in directory and not root.exists():
            dataset(directory)  # probably a mistyped name: this error lists the names
        raise RankupError(
            "no-data-directory",
            f"{directory!r} is not a directory",
            context=f"--data {directory}",
            hint=_choices(layout),
        )
    if len(folders) > 1:
        held = ", ".join(str(folder.relative_to(root)) for folder in folders)
        raise RankupError(
            "ambiguous-data",
            f"{directory!r} holds more than one data set: {held}",
            hint="pass one of these directories",
        )
    if folders:
        return folders[0]
    missing = [name for name in layout.files if path_of(root, name) is None]
    raise RankupError(
        "incomplete-data",
        f"{directory!r} lacks {', '.join(missing)} (each plain or with .gz)",
        hint=f"copy the missing files there, or fetch a data set: `rankup data fetch NAME {directory}`",
    )


def _choices(layout: Layout) -> str:
    return f"use one of {', '.join(names(layout))}, or a directory with {layout.words} to train on"


def path_of(folder: Path, name: str) -> Path | None:
    """The file ``name`` of ``folder``, gzipped (``.gz``) or plain; None without one."""
    return next((path for path in (folder / f"{name}.gz", folder / name) if path.is_file()), None)


def _complete_folders(root: Path, layout: Layout) -> list[Path]:
    folders = [root / folder for folder in layout.folders]
    try:
        return [folder for folder in folders if all(path_of(folder, name) for name in layout.files)]
    except OSError as error:
        raise RankupError(
            "unreadable-data",
            f"cannot read {str(root)!r}: {error.strerror}",
            hint="check the path and its permissions",
        ) from error
