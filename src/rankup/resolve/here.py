"""The job of ``rankup run``, ``train``, ``verify`` and ``scale``: what was asked for, the rest decided by this machine.

A job.toml of ``rankup submit`` is taken as well: what its site had decided is decided anew.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankup.core.nearest import nearest
from rankup.core.resume_with import VARIABLE as RESUME_WITH
from rankup.errors import RankupError
from rankup.findings.engine import collect
from rankup.findings.error import raise_errors
from rankup.findings.finding import Finding
from rankup.resolve.checks import checked_spec
from rankup.resolve.facts import JobFacts
from rankup.resolve.job_toml import read_job_file
from rankup.resolve.layers import Layer, complete, file_layer, in_order, layer, our_defaults, plain_values
from rankup.resolve.resolved import FLAG, Resolved
from rankup.resolve.site_limits import SECRETS
from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec
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
# What only a job's script sets up.
_NOT_HERE = (
    *("pre_modules", "module_purge", "modules", "conda", "container", "binds", "pre"),
    *("array", "sample_gpus", "fanout", "launcher"),
)


def resolve_here(
    flags: Mapping[str, Any],
    *,
    command: tuple[str, ...] = (),
    file: Path | None = None,
    env: Mapping[str, str] = os.environ,
    folder: Path | None = None,
) -> Resolved:
    """The job to run now. Raises ``RankupError`` for whatever can be seen to be wrong before anything starts.

    ``flags`` by the keys of ``JobSpec``; ``command`` as tokens, empty where ``file`` (a job.toml) has it. ``folder`` is
    where a command without a folder of its own runs; None: the current directory.
    """
    asked: Layer = {}
    if file is not None:
        tables = read_job_file(file)
        asked = file_layer(tables, str(file), changed=True)
        asked.pop(f"env.{RESUME_WITH}", None)  # the choice of one attempt
        if tables["origin"].get("python") == "this Python":  # which is another one now
            asked.pop("python", None)
    asked |= layer(flags, FLAG)
    if command:
        asked["command"] = (command, "command line")
    return _resolve(asked, env, folder or Path.cwd())


def changed(job: Resolved, **flags: Any) -> Resolved:
    """``job`` with other values; what nobody asked for follows from them."""
    keys = [key for key in in_order(job.spec) if job.asked(key)]
    values = {key: (_value(job.spec, key), job.origin[key]) for key in keys if key in job.origin}
    return _resolve(values | layer(flags, FLAG), os.environ, job.spec.folder)


def _value(spec: JobSpec, key: str) -> Any:
    return spec.env[key[4:]] if key.startswith("env.") else getattr(spec, key)


def _resolve(asked: Layer, env: Mapping[str, str], folder: Path) -> Resolved:
    inside, said = asked.get("folder", ("", "current directory"))
    asked["folder"] = (folder / inside, said)
    notes = _not_done(asked)
    asked.pop("launcher", None)  # several processes of a run here are torchrun's
    values = our_defaults() | asked
    _processes(values, env)
    if values["python"][1] != FLAG:
        values["python"] = _python(values)
    if "command" not in values:
        usage = "rankup run [OPTIONS] script.py [ARGUMENTS]"
        raise RankupError("no-script", "there is nothing to run", hint=usage)
    complete(values, HERE)
    origin = {key: source for key, (_, source) in values.items()}
    found: list[Finding] = []
    spec = checked_spec(plain_values(values), origin, HERE, asked=asked, wrong=(), found=found, of="run")
    raise_errors([*found, *collect(SECRETS, JobFacts(spec, HERE, origin, env))])
    _check_command(spec, env, origin["folder"])
    keys = [k for k in in_order(spec) if k in _OURS or origin[k] != "default"]
    return Resolved(spec, HERE, {key: origin[key] for key in keys}, notes)


def _not_done(asked: Layer) -> tuple[str, ...]:
    said = [
        key for key in _NOT_HERE if asked.get(key, (None, ""))[0] not in (None, "", (), [], False, 0, "auto")
    ]
    said = [key for key in said if key != "launcher" or asked[key][0] in ("srun", "mpirun")]
    if not said:
        return ()
    what = ", ".join(said)
    return (
        f"the job asks for {what}, which only a submitted job gets: this runs in the environment as it is",
    )


def _processes(values: Layer, env: Mapping[str, str]) -> None:
    """One process for each GPU that the job asks for, else that is visible; one if there is none. In place."""
    gpus, given = values["gpus_per_node"][0], values["nproc_per_node"]
    if given[1] == "default" and isinstance(gpus, int):
        job_env = {key[4:]: str(value) for key, (value, _) in values.items() if key.startswith("env.")}
        visible = count_gpus({**env, **job_env})
        if gpus > visible:
            raise RankupError(
                "too-few-gpus",
                f"GPUs per node: the job asks for {gpus}, and {visible} can be used here",
                context=values["gpus_per_node"][1],
                hint="rankup submit takes it to a cluster; --nproc-per-node N runs N processes on what is here",
            )
        values["nproc_per_node"] = (max(1, gpus or visible), "derived")
    elif isinstance(gpus, int) and isinstance(given[0], int) and given[0] > gpus:
        values["gpus_per_node"] = (0, "default")  # processes that share GPUs, or have none


def _python(values: Layer) -> tuple[str, str]:
    """The job's virtual environment's, else the one that runs rankup: what a site said of it holds there alone."""
    venv = os.path.expandvars(str(values["venv"][0]))
    if venv and not values["container"][0]:
        return str(values["folder"][0] / Path(venv).expanduser() / "bin" / "python"), "derived"
    python, origin = values["python"]
    if (
        origin in ("this Python", "default")
        or values["modules"][0]
        or values["conda"][0]
        or values["container"][0]
    ):
        return sys.executable, "derived"
    return python, origin


def _check_command(spec: JobSpec, env: Mapping[str, str], said: str) -> None:
    """That the command and its folder (which ``said`` names) are there, and torch if several processes need it."""
    if not spec.folder.is_dir():
        raise RankupError(
            "no-such-folder",
            f"the job runs in {str(spec.folder)!r}, which is not there",
            context=said,
            hint="name the script: rankup run [--resume RUN] script.py …",
        )
    first = spec.command[0]
    path = spec.folder / first
    if first == "-m":
        _check_module(spec)
    elif spec.is_python:
        if not path.exists():
            raise _not_found(path, first)
    elif shutil.which(path if "/" in first else first, path=spec.env.get("PATH", env.get("PATH"))) is None:
        if not path.is_file():
            raise _not_found(path, first)
        raise RankupError(
            "script-not-executable",
            f"{first!r} is neither a Python script nor executable",
            hint=f"chmod +x {first}, or name the program that runs it",
        )
    if (
        spec.launcher == "torchrun"
        and spec.python == sys.executable
        and not importlib.util.find_spec("torch")
    ):
        raise RankupError(
            "torch-missing",
            "several processes need torch (torchrun starts them), and this Python has none",
            context=spec.python,
            hint="pip install 'rankup[train]', or install rankup into the environment that has torch; "
            "one process runs without",
        )


def _check_module(spec: JobSpec) -> None:
    if len(spec.command) == 1:
        raise RankupError("no-script", "-m needs the name of a module", hint="rankup run -m package.module")
    top = spec.command[1].partition(".")[0]
    places = [str(spec.folder), *sys.path]
    if (
        spec.python == sys.executable
        and top not in sys.builtin_module_names
        and not importlib.machinery.PathFinder.find_spec(top, places)
    ):
        raise RankupError(
            "module-not-found", f"there is no module {spec.command[1]!r} here", context=str(spec.folder)
        )


def _not_found(path: Path, first: str) -> RankupError:
    names = [p.name for p in path.parent.iterdir() if p.is_file()] if path.parent.is_dir() else []
    close = nearest(path.name, names)
    return RankupError(
        "script-not-found",
        f"there is no script {first!r}"
        + (f"; did you mean {str(Path(first).with_name(close))!r}?" if close else ""),
        context=f"looked in {path.parent}",
    )
