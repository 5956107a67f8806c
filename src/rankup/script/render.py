"""The script of a job: plain bash that runs without rankup on the nodes, and that its user can read and change.

Its first screen is what this job alone has: directives, settings, and ``main``, which says what is done in which order.
After it come the functions that ``main`` calls, and the last line calls ``main``. Functions that are the same in every
job are the ``.sh`` files in ``parts``; what depends on the job is written by ``environment`` and ``start``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from rankup.errors import RankupError
from rankup.launchers.base import argument_code, path_code
from rankup.node_launchers import agents
from rankup.node_launchers.agents import choose
from rankup.node_launchers.base import AgentsScript
from rankup.schedulers.base import scheduler_named
from rankup.schedulers.slurm import directives as slurm
from rankup.script.environment import environment, loaded_modules
from rankup.script.settings import settings
from rankup.script.start import container, meets, stage_nodes, start, uses_pbs_rsh
from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec

# Jobs of this time limit and more prove first that they can be resumed, if two starts take at most a hundredth of it.
PROVED_FROM_S = 3600
STARTS_PER_JOB = 100


def render(spec: JobSpec, site: Site, run_dir: Path | None) -> str:
    """The script of ``spec`` at ``site``. Without ``run_dir`` it makes its run directory itself, below ``runs_root``.

    Pure; raises ``RankupError`` where the site's scheduler cannot do what is asked.
    """
    choose(spec.fanout, site.family)
    if spec.spare and site.family != "slurm":
        raise RankupError(
            "no-spares-here",
            f"--spare is for SLURM, where a job can go on after it has lost a node, and {site.name} has no SLURM",
            hint="leave it out: a job that loses a node goes on in its next attempt",
        )
    ranks = start(spec, site)
    stage = stage_nodes(spec, site) if spec.uses_local_disk else AgentsScript((), ())
    fixed = [*_functions(spec, site, run_dir), ranks.end, ranks.fixed or stage.fixed]
    _check_own_functions(spec, "\n".join(line for section in fixed for line in section))
    sections = [
        _head(spec, site, run_dir),
        settings(spec, site, run_dir),
        ranks.own,
        stage.own,
        _main(spec, site, run_dir, ranks.start),
        _HEADING,
        *fixed,
        ['main "$@"'],
    ]
    return "\n\n".join("\n".join(section) for section in sections if section) + "\n"


# A definition of a function in bash, and not a call or a definition of another language in a here-document.
_FUNCTION = re.compile(r"(?:^|[;&|{(])\s*(?:function\s+([\w-]+)|([\w-]+)\s*\(\s*\)\s*[{(\[])", re.MULTILINE)


def _check_own_functions(spec: JobSpec, text: str) -> None:
    """The user's lines run in this shell, so a function of theirs would replace one of ours of the same name."""
    ours = {"main", *re.findall(r"^ *(\w+)\(\)", text, re.MULTILINE)}
    for flag, lines in (("--pre", spec.pre), ("--pre-modules", spec.pre_modules)):
        theirs = ["".join(names) for names in _FUNCTION.findall("\n".join(lines))]
        if taken := [name for name in theirs if name in ours]:
            raise RankupError(
                "function-of-the-script",
                f"{flag} defines the function {taken[0]!r}, which is a function of the job's own script",
                context=next(line for line in lines if taken[0] in line),
                hint="choose another name",
            )


_HEADING = [
    "#" * 118,
    "# The same in every job: the functions that main calls".ljust(117) + "#",
    "#" * 118,
]


def _main(spec: JobSpec, site: Site, run_dir: Path | None, ranks: Sequence[str]) -> list[str]:
    """What the script does, in order. (The user's lines are in it, and in no function of their own: variables that they
    declare there would be gone after it.)"""
    log = _has_one_log(site, run_dir)
    steps = [
        "read_allocation # JOB, HOSTS, END",
        *(["leave_time_for_work"] if _has_short_time(spec, site) else []),
        f"make_run_directory {_job(spec, site)} # RUN",
        *(["write_one_log"] if log else []),
        "begin_attempt",
        *(["warn_of_bad_nodes"] if site.bad_nodes else []),
    ]
    spares = f", and {spec.spare} spare node{'s' * (spec.spare > 1)}" if spec.spare else ""
    heading = f"# The ranks: {spec.nodes} × {spec.nproc_per_node} by {spec.launcher}{spares}"
    attempt = [
        *(["choose_rendezvous # MASTER_ADDR, MASTER_PORT"] if meets(spec) else []),
        *[_header(spec), "mark_processes"],
        *container(spec, site).prelude,
        *(["write_rank_script"] if spec.launcher != "single" else []),
        *([f"add_torch_hook {path_code(spec.python)}"] if _is_hooked(spec) else []),
        *_start_of_sampler(spec),
        *ranks,
        "watch_ranks # asks them to save before the time limit",
        *(["find_lost_nodes"] if _may_lose_nodes(spec, site) else []),
    ]
    if spec.spare:
        attempt = ["while :; do", *_indented(attempt), "  go_on_without_lost || break", "done"]
    return [
        "main() {",
        *_indented(steps),
        "",
        "  # The environment",
        *environment(spec, site),
        "",
        f"  {heading}",
        *_indented([f"use_nodes {spec.nodes} # HOSTS, USED, SPARES"] if spec.spare else []),
        *_indented(
            [f"preflight {path_code(spec.interpreter)} {spec.nproc_per_node}"] if spec.preflight else []
        ),
        *_indented([_proof(spec)] if _is_proved(spec) else []),
        *_indented(attempt),
        *_indented(["stage_back"] if spec.uses_local_disk else []),
        *_indented([f"end_attempt {path_code(spec.python)} # requeues the job if it is not done"]),
        "}",
    ]


def _functions(spec: JobSpec, site: Site, run_dir: Path | None) -> list[list[str]]:
    """The fixed parts that this job needs, in the order in which ``main`` calls them."""
    loads = bool(spec.module_purge or loaded_modules(spec, site))
    return [
        part(f"{site.family}.sh"),
        part("short_time.sh") if _has_short_time(spec, site) else [],
        [*part("run_directory.sh"), *(part("one_log.sh") if _has_one_log(site, run_dir) else [])],
        part("attempt.sh"),
        part("bad_nodes.sh") if site.bad_nodes else [],
        part("module_inits.sh") if loads else [],
        part("stage.sh") if spec.uses_local_disk else [],
        part("spare_nodes.sh") if spec.spare else [],
        part("preflight.sh") if spec.preflight else [],
        part("proof.sh") if _is_proved(spec) else [],
        part("rendezvous.sh") if meets(spec) else [],
        part("header.sh"),
        part("progress.sh"),
        [*part("time_limit.sh"), *agents.part("marked.sh")],
        _rank_script(spec),
        _sampler_script(spec),
        part("pbs_rsh.sh") if uses_pbs_rsh(spec, site) else [],
        [*part("watch.sh"), *(part("torch_hook.sh") if _is_hooked(spec) else [])],
        _lost_nodes(site) if _may_lose_nodes(spec, site) else [],
        part("failure.sh"),
        part("end_or_requeue.sh"),
    ]


def _is_proved(spec: JobSpec) -> bool:
    """Whether the script may prove that the training can be resumed. A container's Python is not on the node."""
    return spec.proof and spec.is_python and not spec.container


def _is_hooked(spec: JobSpec) -> bool:
    """Whether the ranks may tell that each of them trains a model of its own."""
    return spec.world_size > 1 and spec.is_python and not spec.container


def _proof(spec: JobSpec) -> str:
    seconds = (spec.time or 0) // STARTS_PER_JOB if (spec.time or 0) >= PROVED_FROM_S else 0
    command = " ".join(argument_code(word, spec.uses_local_disk) for word in spec.command)
    return f"prove {seconds} {path_code(spec.interpreter)} {spec.nproc_per_node} {command}"


def _may_lose_nodes(spec: JobSpec, site: Site) -> bool:
    """Whether this script has to look for lost nodes, since the scheduler does not act on them, or not in time."""
    return site.family != "local" and spec.nodes > 1


def _lost_nodes(site: Site) -> list[str]:
    if site.family == "slurm":
        return part("slurm_lost_nodes.sh")
    return [*part("lost_nodes.sh"), *agents.part("is_lost.sh")]


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]


_PROGRAMS = {"ports.py": "rankup.world", "stage.py": "rankup.script"}


def part(name: str) -> list[str]:
    """The lines of a fixed part; a name in it such as ``@ports.py@`` stands for that file's text (``_PROGRAMS``)."""
    text = _text(name)
    for program, package in _PROGRAMS.items():
        if f"@{program}@" in text:
            text = text.replace(f"@{program}@", files(package).joinpath(program).read_text().rstrip("\n"))
    return text.rstrip("\n").split("\n")


def _text(name: str) -> str:
    return files("rankup.script").joinpath("parts").joinpath(name).read_text()


def _head(spec: JobSpec, site: Site, run_dir: Path | None) -> list[str]:
    lines = ["#!/bin/bash"]
    if site.family == "slurm":
        directives = scheduler_named(site.scheduler).directives(spec, site, *_logs(spec, site, run_dir))
        lines += [f"#SBATCH {option}" for option in directives]
    elif site.family == "pbs":
        # What PBS itself says beside our log; qsub reads a path such as "a b" or "host:a" in ways of its own.
        plain = run_dir is not None and re.fullmatch(r"[\w./+@%=-]+", str(run_dir), re.ASCII)
        output = f"{run_dir}/logs/" if plain else ""
        directives = scheduler_named(site.scheduler).directives(spec, site, output)
        lines += [f"#PBS {option}" for option in directives]
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


def _has_short_time(spec: JobSpec, site: Site) -> bool:
    """Whether the queue's own limit, which nobody has told us, may be shorter than the time to save."""
    return not (spec.time or spec.stop_before or site.family == "local")


def _has_one_log(site: Site, run_dir: Path | None) -> bool:
    """Whether the script writes its own log; SLURM writes it as told by a directive."""
    return site.family == "pbs" or (site.family == "local" and run_dir is not None)


_TASK = {
    "slurm": "${SLURM_ARRAY_TASK_ID:-}",
    "pbs": "${RANKUP_TASK:-${PBS_ARRAY_INDEX:-${PBS_ARRAYID:-}}}",
    "local": "",
}
_ARRAY_JOB = {"slurm": "${SLURM_ARRAY_JOB_ID:-}", "pbs": "${PBS_JOBID%%[!0-9]*}", "local": "$JOB"}


def _job(spec: JobSpec, site: Site) -> str:
    """What names the run directory of a job that is submitted by hand; and the task of an array."""
    if not spec.array:
        return '"$JOB"'
    return f'"{_ARRAY_JOB[site.family]}" "{_TASK[site.family]}"'


def _rank_script(spec: JobSpec) -> list[str]:
    """What runs between the launcher and each rank; a single process does without."""
    if spec.launcher == "single":
        return []
    shebang, *lines = part("rank.sh")
    return [
        "# ---- One rank ".ljust(118, "-"),
        "# Only the parent of a rank knows when and how it has ended.",
        "write_rank_script() {",
        """  cat >"$RUN/rank.sh" <<'END_OF_SCRIPT'""",
        *(shebang, *lines),
        "END_OF_SCRIPT",
        "}",
    ]


def _start_of_sampler(spec: JobSpec) -> list[str]:
    """The first rank of each node starts it, or this script, if there is one process and no script of a rank."""
    if not spec.monitor:
        return ['rm -f "$RUN/sampler.sh"']  # an earlier attempt's
    python = path_code(spec.python)
    alone = [
        f'sh "$RUN/sampler.sh" $$ {python} </dev/null >/dev/null 2>&1 &',
        "disown # bash says nothing of its end",
    ]
    return ["write_sampler_script", *(alone if spec.launcher == "single" else [])]


def _sampler_script(spec: JobSpec) -> list[str]:
    if not spec.monitor:
        return []
    return [
        "# ---- What a node's processors do ".ljust(118, "-"),
        "write_sampler_script() {",
        """  cat >"$RUN/sampler.sh" <<'END_OF_SCRIPT'""",
        *part("sampler.sh"),
        "END_OF_SCRIPT",
        "}",
    ]


def _header(spec: JobSpec) -> str:
    if spec.container:
        return f'print_header "of the image" {path_code(spec.container)}'
    return f'print_header "$({path_code(spec.python)} --version 2>&1)"'
