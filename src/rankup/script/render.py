"""The script of a job: plain bash that runs without rankup on the nodes, and that its user can read and change.

``render`` says which parts there are, in which order. Parts that are the same for every job are the ``.sh`` files
beside this one; what depends on the job is written by the functions of ``environment`` and ``start``.
"""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from rankup.core import shell
from rankup.launchers.base import path_code
from rankup.node_launchers.agents import choose
from rankup.schedulers.pbs import directives as pbs
from rankup.schedulers.slurm import directives as slurm
from rankup.script.environment import environment
from rankup.script.start import meets, sampler, start
from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec

# Successors that are submitted beforehand, where nodes may not submit: each of them waits in the queue.
MOST_SUCCESSORS = 3


def render(spec: JobSpec, site: Site, run_dir: Path | None) -> str:
    """The script of ``spec`` at ``site``. Without ``run_dir`` it makes its run directory itself, below ``runs_root``.

    Pure; raises ``RankupError`` where the site's scheduler cannot do what is asked.
    """
    choose(spec.fanout, site.scheduler)
    sampling = sampler(spec, site)
    sections = [
        _head(spec, site, run_dir),
        _settings(spec, site),
        [*part(f"{site.scheduler}.sh"), *_short_time(spec, site)],
        [*_run_directory(spec, site, run_dir), *part("attempt.sh")],
        environment(spec, site),
        part("rendezvous.sh") if meets(spec) else [],
        _header(spec),
        sampling,
        [*part("progress.sh"), *_places(spec)],
        part("time_limit.sh"),
        _one_rank(spec),
        start(spec, site),
        part("watch.sh"),
        ['kill "$sampler" 2>/dev/null'] if sampling else [],
        part("lost.sh") if site.scheduler == "pbs" and spec.nodes > 1 else [],
        part("failure.sh"),
        part("ending.sh"),
    ]
    return "\n\n".join("\n".join(section) for section in sections if section) + "\n"


def part(name: str) -> list[str]:
    """The lines of a fixed part; ``@ports.py@`` in it stands for the text of ``world/ports.py``."""
    text = _text(name)
    if "@ports.py@" in text:
        text = text.replace("@ports.py@", files("rankup.world").joinpath("ports.py").read_text().rstrip("\n"))
    return text.rstrip("\n").split("\n")


def _text(name: str) -> str:
    return files("rankup.script").joinpath("parts").joinpath(name).read_text()


def _head(spec: JobSpec, site: Site, run_dir: Path | None) -> list[str]:
    lines = ["#!/bin/bash"]
    if site.scheduler == "slurm":
        output, error = _logs(spec, site, run_dir)
        lines += [f"#SBATCH {option}" for option in slurm.directives(spec, site, output, error)]
    elif site.scheduler == "pbs":
        # What PBS itself says beside our log; qsub reads a path such as "a b" or "host:a" in ways of its own.
        plain = run_dir is not None and re.fullmatch(r"[\w./+@%=-]+", str(run_dir), re.ASCII)
        output = f"{run_dir}/logs/" if plain else ""
        lines += [f"#PBS {option}" for option in pbs.directives(spec, site, output)]
    return [*lines, "", *_WHAT_IT_IS]


# What the linter takes for a mistake is meant: variables in single quotes are for the ranks' shells.
_WHAT_IT_IS = [
    "# Written by rankup. This is plain bash: it needs no rankup on the nodes unless the program itself does, and can",
    "# be read, changed and submitted by hand.",
    "# shellcheck disable=SC2016",
]


def _logs(spec: JobSpec, site: Site, run_dir: Path | None) -> tuple[str, str]:
    """SLURM's names for the log and the error log: in the run directory, else the site's own."""
    if run_dir is not None:
        folder = slurm.path_pattern(str(run_dir / "logs"))
        return f"{folder}/job-%a.log" if spec.array else f"{folder}/job.log", ""
    if site.output:
        return site.output.format(name=spec.name), site.error.format(name=spec.name)
    return f"{spec.name}-%{'A_%a' if spec.array else 'j'}.log", ""


def _settings(spec: JobSpec, site: Site) -> list[str]:
    requeues = spec.max_requeues
    if site.scheduler == "pbs" and not site.pbs.nodes_may_submit:
        requeues = min(requeues, MOST_SUCCESSORS)
    lines = [
        "# ---- Settings ".ljust(118, "-"),
        f"STOP_BEFORE={spec.lead} # seconds before the end at which the ranks are asked to save",
        f"MAX_REQUEUES={requeues}",
    ]
    if site.scheduler != "slurm":
        lines.append(f"TIME={spec.time or 0} # seconds; 0: the queue's own limit")
    if site.scheduler == "pbs":
        lines.append(f"NODES_MAY_SUBMIT={'yes' if site.pbs.nodes_may_submit else 'no'}")
    if meets(spec):
        lines.append(
            f"INTERFACE={shell.quote([site.node.interface])} # of the network between the nodes; '': ask"
        )
    return lines


_WHAT_IT_HOLDS = [
    "# Logs, records, snapshots, and small files through which the parts of this job speak to each other. A program",
    "# that uses rankup finds it by RANKUP_RUN_DIR; others need not care.",
]


def _short_time(spec: JobSpec, site: Site) -> list[str]:
    """The queue's own limit, which nobody has told us, may be shorter than what we would keep for saving."""
    if spec.time or spec.stop_before or site.scheduler == "local":
        return []
    return [
        "# A short limit of the queue's own: half of it is left for work.",
        "left=$((END - $(date +%s)))",
        '[ "$END" -eq 0 ] || [ "$left" -gt "$((2 * STOP_BEFORE))" ] || STOP_BEFORE=$((left / 2))',
    ]


_TASK = {
    "slurm": "${SLURM_ARRAY_TASK_ID:-}",
    "pbs": "${RANKUP_TASK:-${PBS_ARRAY_INDEX:-${PBS_ARRAYID:-}}}",
    "local": "",
}
_ARRAY_JOB = {"slurm": "$SLURM_ARRAY_JOB_ID", "pbs": "${PBS_JOBID%%[!0-9]*}", "local": "$JOB"}


def _run_directory(spec: JobSpec, site: Site, run_dir: Path | None) -> list[str]:
    """Where RUN is: given, or made by the script for whoever submits it by hand."""
    base = shell.quote([str(run_dir)])
    if run_dir is None:
        root = shell.quote([str(spec.folder / spec.runs_root / spec.name)])
        base = f"{root}/{_ARRAY_JOB[site.scheduler] if spec.array else '$JOB'}"
    successor = "RANKUP_SUCCESSOR=1"
    if site.scheduler == "pbs" and run_dir is None:
        base = f"${{RANKUP_RUN:-{base}}}"  # a successor's is that of the job before it
        successor += ",RANKUP_RUN=$BASE"
    lines = ["# ---- The run directory ".ljust(118, "-"), *_WHAT_IT_HOLDS, f"BASE={base}"]
    lines += [f'SUCCESSOR="{successor}"'] if site.scheduler == "pbs" else []
    if spec.array:
        lines += [f"export RANKUP_TASK={_TASK[site.scheduler]}", "export RUN=$BASE/task-$RANKUP_TASK"]
    else:
        lines += ["export RUN=$BASE", "unset RANKUP_TASK"]
    lines += ["export RANKUP_RUN_DIR=$RUN"]
    lines += ['(umask 077 && mkdir -p "$BASE/logs" "$RUN/logs" "$RUN/records")']
    if run_dir is None:
        lines += ['[ -e "$BASE/job.sh" ] || cp "$0" "$BASE/job.sh" # for a successor, and for later']
    if site.scheduler == "pbs" or (site.scheduler == "local" and run_dir is not None):
        lines += [
            "# One log for all attempts, which can be read while the job runs.",
            f'exec >>"$BASE/logs/job{"-$RANKUP_TASK" if spec.array else ""}.log" 2>&1',
        ]
    return lines


def _places(spec: JobSpec) -> list[str]:
    """Where the program may save: the paths among its arguments and variables."""
    words = [word.rpartition("=")[2] for word in (*spec.command, *spec.env.values())]
    paths = dict.fromkeys(word for word in words if re.match(r"/[^/]|\$\w+/|\.\.?/", word))
    return [
        f"PLACES=({' '.join(map(path_code, paths))})",
        f"RUNS={shell.quote([str(spec.folder / spec.runs_root)])} # below it, other runs' files",
    ]


def _one_rank(spec: JobSpec) -> list[str]:
    """What stands between the launcher and each rank; a lone process needs nothing."""
    if spec.launcher == "single":
        return []
    return [
        "# ---- One rank ".ljust(118, "-"),
        "# Only its parent knows when and how a rank has ended. This script goes on below END_OF_SCRIPT.",
        """cat >"$RUN/rank.sh" <<'END_OF_SCRIPT'""",
        *part("rank.sh"),
        "END_OF_SCRIPT",
    ]


def _header(spec: JobSpec) -> list[str]:
    if spec.container:
        return [*part("header.sh"), f'echo "python    of the image" {path_code(spec.container)}']
    return [*part("header.sh"), f'echo "python    $({path_code(spec.python)} --version 2>&1)"']
