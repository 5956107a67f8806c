"""What follows from the rest of a job where nobody said it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankup.core.rundir import default_name
from rankup.core.units import parse_size
from rankup.sites.site import Site

_DERIVED = "derived"


def fill_defaults(
    values: Mapping[str, Any], undecided: frozenset[str], site: Site
) -> dict[str, tuple[Any, str]]:
    """A value and its origin for each of the ``undecided`` keys about which something follows from ``values``."""
    found: dict[str, tuple[Any, str]] = {}
    command = values.get("command")
    if "name" in undecided and command:
        found["name"] = (default_name(tuple(map(str, command))), _DERIVED)
    gpus, nproc = values["gpus_per_node"], values["nproc_per_node"]
    if not isinstance(gpus, int) or not isinstance(nproc, int) or not isinstance(values["nodes"], int):
        return found  # JobSpec says what is wrong with them
    if "nproc_per_node" in undecided:
        nproc = max(1, gpus)
        found["nproc_per_node"] = (nproc, _DERIVED)
    if "launcher" in undecided:
        several = values["nodes"] * nproc > 1 or values["max_restarts"]
        torchrun = "torchrun" if "torchrun" in site.launchers else site.launchers[0]
        found["launcher"] = (torchrun if several else "single", _DERIVED)
    if "mem" in undecided and gpus and site.node.mem_per_gpu:
        found["mem"] = (parse_size(site.node.mem_per_gpu) * gpus, _DERIVED)
    if "python" in undecided and not any(values[k] for k in ("venv", "conda", "container", "modules")):
        # By its path: an inherited conda or PATH would find another one on the node.
        found["python"] = (sys.executable, "this Python")
    return found


def absolute_paths(values: dict[str, Any]) -> dict[str, Any]:
    """The same with every path absolute: relative ones start at ``folder``, in which the command runs.

    Names of conda environments, addresses of images (``docker://…``) and what holds a ``$`` for the job's shell stay.
    """
    folder = values["folder"]

    def absolute(text: Any) -> Any:
        if not isinstance(text, str) or not text or "$" in text or "://" in text:
            return text
        return str(folder / Path(text).expanduser())

    def source(bind: Any) -> Any:
        path, colon, target = str(bind).partition(":")
        return absolute(path) + colon + target

    changed = {key: absolute(values[key]) for key in ("venv", "container")}
    changed["conda"] = absolute(values["conda"]) if "/" in str(values["conda"]) else values["conda"]
    changed["binds"] = tuple(map(source, values["binds"]))
    return {
        **values,
        **changed,
        "folder": folder,
        "runs_root": folder / Path(values["runs_root"]).expanduser(),
    }
