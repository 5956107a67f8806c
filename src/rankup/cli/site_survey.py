"""Reads facts about this cluster for ``rankup sites new``, by commands that change nothing, each run once."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping, Sequence

from rankup.core.shell import quote, run
from rankup.errors import RankupError
from rankup.sites.discovery import (
    PBSNODES,
    QSTAT,
    SINFO,
    ClusterFacts,
    Queue,
    largest,
    profile,
    read_pbsnodes,
    read_qstat_queues,
    read_sinfo,
)
from rankup.world.devices import find_gpus


def survey(name: str, env: Mapping[str, str]) -> str:
    """The text of a profile called ``name``. Raises ``RankupError`` if the scheduler does not answer."""
    path = env.get("PATH", "")

    def seen(source: str) -> ClusterFacts:
        modules = bool(env.get("LMOD_CMD") or env.get("MODULESHOME"))  # `module` itself is a shell function
        return ClusterFacts(
            source, platform.machine(), shutil.which("mpirun", path=path) is not None, modules
        )

    if shutil.which(SINFO[0], path=path):
        queues = read_sinfo(_ask(SINFO))
        return profile(name, "slurm", queues, largest(queues), seen("sinfo"))
    if shutil.which(QSTAT[0], path=path):
        node, scheduler = read_pbsnodes(_ask(PBSNODES))
        queues = read_qstat_queues(_ask(QSTAT))
        return profile(name, scheduler, queues, node, seen("qstat and pbsnodes"))
    node = Queue("", cpus=os.cpu_count() or 0, gpus=len(find_gpus()))
    return profile(name, "local", [], node, seen("this machine"))


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
