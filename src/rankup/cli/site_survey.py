"""Reads facts about this cluster for ``rankup sites``, by commands that change nothing, each run once."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

from rankup.core.shell import quote, run
from rankup.errors import RankupError
from rankup.sites.discovery import (
    PBSNODES,
    QSTAT,
    SINFO,
    ClusterFacts,
    Queue,
    Survey,
    largest,
    read_modules,
    read_mounts,
    read_pbsnodes,
    read_qstat_queues,
    read_sinfo,
    read_srun_runtimes,
)
from rankup.world.devices import find_gpus

# Runtimes of containers that are programs; others are options of srun.
_PROGRAMS = ("apptainer", "singularity", "podman-hpc", "shifter", "sarus")
_SLOW_S = 20  # a login node whose file system is busy


def survey(env: Mapping[str, str]) -> Survey:
    """Raises ``RankupError`` if the scheduler does not answer."""
    path = env.get("PATH", "")
    if shutil.which(SINFO[0], path=path):
        queues = tuple(read_sinfo(_ask(SINFO)))
        return Survey("slurm", queues, largest(queues), _facts("sinfo", env))
    if shutil.which(QSTAT[0], path=path):
        node, scheduler = read_pbsnodes(_ask(PBSNODES))
        return Survey(
            scheduler, tuple(read_qstat_queues(_ask(QSTAT))), node, _facts("qstat and pbsnodes", env)
        )
    node = Queue("", cpus=os.cpu_count() or 0, gpus=len(find_gpus()))
    return Survey("local", (), node, _facts("this machine", env))


def _facts(who: str, env: Mapping[str, str]) -> ClusterFacts:
    path = env.get("PATH", "")
    there = {name for name in (*_PROGRAMS, "mpirun", "srun") if shutil.which(name, path=path)}
    by_srun = read_srun_runtimes(_said("srun", "--help")) if "srun" in there else ()
    return ClusterFacts(
        f"{who} on {platform.node()}",
        platform.machine(),
        date.today().isoformat(),
        "mpirun" in there,
        # `module` is a function of login shells; some print to stderr.
        read_modules(_said("bash", "-lc", "module -t avail 2>&1")) if _has_modules(env) else (),
        (*(name for name in _PROGRAMS if name in there), *by_srun),
        _interfaces(),
        _said(SINFO[0], "--version").removeprefix("slurm ").strip() if who == SINFO[0] else "",
        who == SINFO[0] and "enable_expedited_requeue" in _said("scontrol", "show", "config"),
        read_mounts(_text(Path("/proc/mounts"))),
    )


def _has_modules(env: Mapping[str, str]) -> bool:
    return bool(env.get("LMOD_CMD") or env.get("MODULESHOME"))


def _interfaces() -> tuple[str, ...]:
    try:
        return tuple(sorted(path.name for path in Path("/sys/class/net").iterdir()))
    except OSError:
        return ()


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _said(*tokens: str) -> str:
    """What a command printed, "" if it failed."""
    done = run(tokens, timeout=_SLOW_S)
    return "" if done.code else done.out


def _ask(tokens: Sequence[str]) -> str:
    done = run(tokens)
    if done.code:
        raise RankupError(
            "no-answer",
            f"{tokens[0]} failed with exit code {done.code}",
            context=(done.err or done.out).strip().partition("\n")[0],
            hint=f"this command must work here: {quote(tokens)}",
            exit_code=1,
        )
    return done.out
