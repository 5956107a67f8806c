"""The settings at the top of a job's script, for its functions and for whoever changes it by hand."""

from __future__ import annotations

import re
from pathlib import Path

from rankup.core import shell
from rankup.launchers.base import expanded_code, path_code
from rankup.script.start import meets
from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec

# Successors that are submitted beforehand, where nodes may not submit: each of them waits in the queue.
MOST_SUCCESSORS = 3


def settings(spec: JobSpec, site: Site, run_dir: Path | None) -> list[str]:
    """Lines of bash, one for each setting that this job needs."""
    requeues = spec.max_requeues
    if site.family == "pbs" and not site.pbs.nodes_may_submit:
        requeues = min(requeues, MOST_SUCCESSORS)
    runs = spec.folder / spec.runs_root
    lines = [
        "# ---- Settings ".ljust(118, "-"),
        _base(spec, site, run_dir),
        f"RUNS={shell.quote([str(runs)])} # all runs are below it",
        f"PLACES=({' '.join(_places(spec))}) # where else the program may save: paths in its arguments and variables",
        f"SAVES=({' '.join(map(path_code, spec.saves))}) # patterns of what it goes on from; (): any file there",
        f"STOP_BEFORE={spec.lead} # seconds before the time limit at which the ranks are asked to save",
        f"MAX_REQUEUES={requeues}",
    ]
    if spec.uses_local_disk:
        sources = " ".join(f"{name}={path_code(path)}" for name, path in spec.stage.items())
        disk = expanded_code(site.node.local_disk) if site.node.local_disk else _LOCAL_DISK
        lines += [
            f"STAGE=({sources}) # what each node gets on its own disk",
            f"BACK=({shell.quote(spec.back)}) # what is copied from there to RUN/results",
            f"LOCAL_DISK={disk}",
        ]
    if site.family != "slurm":
        lines.append(f"TIME={spec.time or 0} # seconds; 0: the queue's own limit")
    if site.family == "pbs":
        lines.append(f"NODES_MAY_SUBMIT={'yes' if site.pbs.nodes_may_submit else 'no'}")
    if site.bad_nodes:
        lines.append(f"BAD_NODES={path_code(site.bad_nodes)} # a file of the team")
    if meets(spec):
        lines.append(
            f"INTERFACE={shell.quote([site.node.interface])} # the nodes' network; '': the route says it"
        )
    return lines


# Where a profile does not say: what schedulers and centres set for a job, else what every node has.
_LOCAL_DISK = "${SLURM_TMPDIR:-${LOCAL_SCRATCH:-${TMPDIR:-/tmp}}}"


def _base(spec: JobSpec, site: Site, run_dir: Path | None) -> str:
    if run_dir is not None:
        return f"BASE={shell.quote([str(run_dir)])} # the run directory"
    base = shell.quote([f"{spec.folder / spec.runs_root / spec.name}/"])
    if site.family == "local":
        return f"BASE={base} # the run directory is below it, and named after the job's id"
    # So a successor, and a job that is submitted by hand once more, goes on in the run directory of the one before.
    return f"BASE=${{RANKUP_RUN:-{base}}} # the run directory is below it, and named after the job's id"


def _places(spec: JobSpec) -> list[str]:
    """Where the program may save: the paths among its arguments and variables."""
    words = [word.rpartition("=")[2] for word in (*spec.command, *spec.env.values())]
    paths = dict.fromkeys(word for word in words if re.match(r"/[^/]|\$\w+/|\.\.?/", word))
    return list(map(path_code, paths))
