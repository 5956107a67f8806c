"""The job of ``rankup run``, ``train``, ``verify`` and ``scale``: what was asked for, the rest decided by this machine.

A job.toml of ``rankup submit`` is taken as well: what its site had decided is decided anew.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rankup.core.choices import RESUME_WITH
from rankup.findings.engine import Source, collect
from rankup.findings.error import raise_errors
from rankup.findings.finding import Finding, Severity
from rankup.resolve.advice import option_after_script
from rankup.resolve.checks import VARIABLES, checked_job
from rankup.resolve.job_toml import check_job_file, job_file
from rankup.resolve.origins import OUR_DEFAULTS, Layer, file_layer, layer
from rankup.resolve.resolved import FLAG, Resolved
from rankup.sites.site import Site
from rankup.world.devices import count_gpus

# No cluster's profile: this machine, machines by hand, or the allocation that we are in.
HERE = Site(name="", scheduler="local")
# What a run here decides or takes over, and so what its job.toml always says.
_OURS = (
    "command",
    "name",
    "folder",
    "nodes",
    "nproc_per_node",
    "launcher",
    "max_restarts",
    "python",
    "runs_root",
)
# In the shell of an allocation, --nnodes says how many of its nodes.
_ALLOCATIONS = ("SLURM_JOB_NODELIST", "PBS_NODEFILE")
# What only a job's script sets up, the values that ask for nothing of it, and what is said of the others.
_NOT_HERE = (
    *("pre_modules", "module_purge", "modules", "conda", "pixi", "container", "container_runtime", "binds"),
    *("pre", "array", "fanout", "stage", "back", "spare"),
)
_NOTHING: tuple[object, ...] = (None, "", (), [], {}, False, 0, "auto")
_NOTE = "the job asks for {}, which only a submitted job gets: this runs in the environment as it is"


def resolve_here(
    flags: Mapping[str, Any],
    *,
    command: tuple[str, ...] = (),
    file: Path | None = None,
    earlier: Resolved | None = None,
    env: Mapping[str, str] = os.environ,
    folder: Path | None = None,
) -> Resolved:
    """The job to run now. Raises ``FindingsError`` with everything that can be seen to be wrong before anything starts.

    ``flags`` by the keys of ``JobSpec``, over what was asked for in ``file`` (a job.toml) or in an ``earlier`` job.
    ``command`` as tokens, or a job.toml; empty where the file or the earlier job has it. ``folder`` is where a command
    without a folder of its own runs; None: the current directory.
    """
    asked: Layer = {}
    found: list[Finding] = []
    wrong: set[str] = set()
    if command and command[0].endswith(".toml"):
        file, command = job_file(command, file), ()
    if file is not None:
        tables, found, wrong = check_job_file(file)
        asked = file_layer(tables, str(file), changed=True)
        asked.pop(f"env.{RESUME_WITH.variable}", None)  # the choice of one attempt
        if tables["origin"].get("python") == "this Python":  # which is another one now
            asked.pop("python", None)
    elif earlier is not None:
        folder, values = earlier.spec.folder, layer(vars(earlier.spec), "")
        asked = {key: (values[key][0], earlier.origin[key]) for key in earlier.asked}
    asked |= layer(flags, FLAG)
    if command:
        asked["command"] = (command, "command line")
    inside, origin = asked.get("folder", ("", "current directory"))
    asked["folder"] = ((folder or Path.cwd()) / inside, origin)
    not_here = [key for key in _NOT_HERE if asked.get(key, (None, ""))[0] not in _NOTHING]
    if asked.pop("launcher", ("", ""))[0] in ("srun", "mpirun"):
        not_here.append("launcher")  # several processes of a run here are torchrun's

    values = OUR_DEFAULTS | asked
    found += _decide_here(values, env)
    job = checked_job(
        values,
        HERE,
        command="rankup run",
        where="rankup run",
        asked={*asked} - wrong,
        env=env,
        wrong=wrong,
        found=found,
    )
    raise_errors([*found, *collect({**VARIABLES, **_STARTS}, job)])
    origins = {key: said for key, said in job.origin.items() if key in _OURS or said != "default"}
    notes = [_NOTE.format(", ".join(not_here))] if not_here else []
    notes += [f"{found.message}: {found.fix}" for found in option_after_script(job)]
    return replace(job, origin=origins, notes=tuple(notes))


def _decide_here(values: Layer, env: Mapping[str, str]) -> Iterator[Finding]:
    """In place: what this machine decides, processes and Python.

    One process for each GPU that the job asks for, else for each that is visible; one without GPUs. The Python of the
    job's virtual environment, else the one that runs rankup: what a site says of it is true on that site alone.
    """
    gpus, nproc = values["gpus_per_node"][0], values["nproc_per_node"]
    if nproc[1] == "default" and isinstance(gpus, int):
        job_env = {key[4:]: str(value) for key, (value, _) in values.items() if key.startswith("env.")}
        visible = count_gpus({**env, **job_env})
        if gpus > visible:
            yield Finding(
                "too-few-gpus",
                Severity.ERROR,
                f"GPUs per node: the job asks for {gpus}, and {visible} can be used here",
                place=values["gpus_per_node"][1],
                fix="rankup submit takes it to a cluster; --nproc-per-node N runs N processes on what is here",
            )
        values["nproc_per_node"] = (max(1, gpus or visible), "derived")
    elif isinstance(gpus, int) and isinstance(nproc[0], int) and nproc[0] > gpus:
        values["gpus_per_node"] = (0, "default")  # processes that share GPUs, or have none

    venv = os.path.expandvars(str(values["venv"][0]))
    others = any(values[key][0] for key in ("modules", "conda", "pixi", "container"))
    origin = values["python"][1]
    if origin != FLAG and venv and not values["container"][0]:
        python = values["folder"][0] / Path(venv).expanduser() / "bin" / "python"
        values["python"] = (str(python), "derived")
    elif origin != FLAG and (others or origin in ("this Python", "default")):
        values["python"] = (sys.executable, "derived")


def _program(job: Resolved) -> Iterator[Finding]:
    """The folder, and in it the script, the program or the module."""
    spec = job.spec
    first, *rest = spec.command
    path = spec.folder / first
    if not spec.folder.is_dir():
        yield Finding(
            "no-such-folder",
            Severity.ERROR,
            f"the job runs in {str(spec.folder)!r}, which does not exist",
            place=job.origin["folder"],
            fix="name the script: rankup run [--resume RUN] script.py …",
        )
    elif first == "-m" and not rest:
        usage = "rankup run -m package.module"
        yield Finding("no-script", Severity.ERROR, "-m requires the name of a module", fix=usage)
    elif first == "-m":
        from rankup.resolve.program import has_module

        if spec.python == sys.executable and not has_module(rest[0], [str(spec.folder), *sys.path]):
            message = f"module not found: {rest[0]!r}"
            yield Finding("module-not-found", Severity.ERROR, message, place=str(spec.folder))
    elif spec.is_python and not path.exists():
        from rankup.resolve.program import script_not_found

        yield script_not_found(spec.folder, first)
    elif not spec.is_python:
        search = spec.env.get("PATH", job.env.get("PATH"))
        if shutil.which(path if "/" in first else first, path=search):
            return
        if not path.is_file():
            from rankup.resolve.program import script_not_found

            yield script_not_found(spec.folder, first)
            return
        yield Finding(
            "script-not-executable",
            Severity.ERROR,
            f"{first!r} is neither a Python script nor executable",
            fix=f"chmod +x {first}, or name the program that runs it",
        )


def _torch(job: Resolved) -> Iterator[Finding]:
    spec = job.spec
    local = spec.python == sys.executable
    if spec.launcher == "torchrun" and local and not importlib.util.find_spec("torch"):
        yield Finding(
            "torch-missing",
            Severity.ERROR,
            "several processes require torch (torchrun starts them), and this Python does not have it",
            place=spec.python,
            fix="pip install 'rankup[train]', or install rankup into the environment that has torch; "
            "one process runs without",
        )


def _machines(job: Resolved) -> Iterator[Finding]:
    """Machines by hand: each needs to know how many there are, which of them it is, and where node 0 is."""
    spec, asked = job.spec, job.asked
    by_hand = job.origin["nodes"] == FLAG or "node_rank" in asked or spec.rdzv_endpoint
    if not by_hand or (spec.nodes == 1 and spec.node_rank == 0):
        return
    if not ("node_rank" in asked or spec.rdzv_endpoint) and {*_ALLOCATIONS} & {*job.env}:
        return  # so many nodes of the allocation
    needed = {"--nnodes": "nodes" in asked, "--node-rank": "node_rank" in asked}
    needed["--rdzv-endpoint"] = bool(spec.rdzv_endpoint)
    if missing := [flag for flag, there in needed.items() if not there]:
        yield Finding(
            "incomplete-nodes",
            Severity.ERROR,
            f"machines started by hand also require {' and '.join(missing)}",
            fix="on each machine: rankup run --nnodes 2 --node-rank 0|1 --rdzv-endpoint HOST:PORT script.py, "
            "with the HOST of node rank 0",
        )
    elif spec.node_rank >= spec.nodes:
        message = f"--node-rank must be less than --nnodes ({spec.nodes}), got {spec.node_rank}"
        yield Finding("bad-node-rank", Severity.ERROR, message)


_STARTS: Mapping[str, Source[Resolved]] = {
    "script-not-found": _program,
    "torch-missing": _torch,
    "incomplete-nodes": _machines,
}
