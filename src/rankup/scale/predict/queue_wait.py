"""How long a job of each size would wait in the queue, by the scheduler of a site that the user has named."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankup.core import shell
from rankup.core.units import duration
from rankup.errors import RankupError
from rankup.findings.error import findings_of
from rankup.resolve.precedence import resolve
from rankup.scale.predict.points import Size
from rankup.schedulers.base import scheduler_named
from rankup.sites.lookup import choose_site
from rankup.sites.site import Site

TIMEOUT_S = 15.0  # of one question
_SILENT = ("scheduler-missing", "scheduler-unreachable")
NO_SITE = "unknown: --site NAME asks the scheduler"


@dataclass(frozen=True)
class QueueWait:
    """``seconds`` is None if nobody can tell; ``reason`` says why."""

    size: Size
    seconds: float | None
    reason: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "nodes": self.size.nodes,
            "per_node": self.size.per_node,
            "seconds": self.seconds,
            "reason": self.reason,
        }


def queue_waits(
    sizes: Sequence[Size], site: str, flags: Mapping[str, Any], device_type: str = ""
) -> list[QueueWait]:
    """Of each size. ``flags``: those of the job, as for ``rankup submit``. Raises RankupError for an unknown site.

    ``device_type`` "" means GPUs where the site's nodes have some. A scheduler that does not answer is asked once.
    """
    chosen, _ = choose_site(site, os.environ, Path.cwd())
    gpus = device_type == "cuda" if device_type else bool(chosen.node.gpus)
    waits: list[QueueWait] = []
    silent = ""  # why the scheduler gave no answer to the question before
    for size in sizes:
        if silent:
            waits.append(QueueWait(size, None, silent))
            continue
        shape = {"nodes": size.nodes, ("gpus_per_node" if gpus else "nproc_per_node"): size.per_node}
        try:
            waits.append(QueueWait(size, _ask(chosen, {**flags, **shape})))
        except RankupError as error:
            reason = "; ".join(one.message for one in findings_of(error))
            silent = reason if error.code in _SILENT else ""
            waits.append(QueueWait(size, 0.0 if error.code == "no-queue" else None, reason))
    return waits


def wait_text(waits: Sequence[QueueWait]) -> str:
    return "; ".join(
        f"{one.size}: {duration(one.seconds) if one.seconds is not None else f'unknown ({one.reason})'}"
        for one in waits
    )


def _ask(site: Site, flags: Mapping[str, Any]) -> float:
    job = resolve(
        flags, command=("true",), file=None, site=site.name, env=os.environ, folder=Path.cwd(), ignore=()
    )
    scheduler = scheduler_named(site.scheduler)
    command = scheduler.start_command(job.spec, job.site)
    done = shell.run(command, env=scheduler.clean(os.environ), timeout=TIMEOUT_S)
    return max(0.0, scheduler.read_start(done, job.spec) - time.time())
