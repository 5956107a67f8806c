"""The job of ``rankup run``, ``train``, ``verify`` and ``scale``: what was asked for, the rest decided by this machine.

A job.toml of ``rankup submit`` is taken as well: what its site had decided is decided anew.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rankup.core.resume_with import VARIABLE as RESUME_WITH
from rankup.findings.engine import Source, collect
from rankup.findings.error import raise_errors
from rankup.findings.finding import Finding, Severity
from rankup.resolve.checks import checked_spec
from rankup.resolve.defaults import fill_defaults
from rankup.resolve.facts import JobFacts
from rankup.resolve.job_toml import check_job_file
from rankup.resolve.layers import (
    Layer,
    file_layer,
    in_order,
    layer,
    one_of_each,
    our_defaults,
    undecided,
)
from rankup.resolve.program import has_module, nearest_script
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
    """The job to run now. Raises ``FindingsError`` with everything that can be seen to be wrong before anything starts.

    ``flags`` by the keys of ``JobSpec``; ``command`` as tokens, empty where ``file`` (a job.toml) has it. ``folder`` is
    where a command without a folder of its own runs; None: the current directory.
    """
    asked: Layer = {}
    found: list[Finding] = []
    wrong: set[str] = set()
    if file is not None:
        tables, found, wrong = check_job_file(file)
        asked = file_layer(tables, str(file), changed=True)
        asked.pop(f"env.{RESUME_WITH}", None)  # the choice of one attempt
        if tables["origin"].get("python") == "this Python":  # which is another one now
            asked.pop("python", None)
    asked |= layer(flags, FLAG)
    if command:
        asked["command"] = (command, "command line")
    return _resolve(asked, env, folder or Path.cwd(), found, wrong)


def changed(job: Resolved, **flags: Any) -> Resolved:
    """``job`` with other values; what nobody asked for follows from them."""
    keys = [key for key in in_order(job.spec) if job.asked(key)]
    values = {key: (_value(job.spec, key), job.origin[key]) for key in keys if key in job.origin}
    return _resolve(values | layer(flags, FLAG), os.environ, job.spec.folder, [], set())


def _value(spec: JobSpec, key: str) -> Any:
    return spec.env[key[4:]] if key.startswith("env.") else getattr(spec, key)


def _resolve(
    asked: Layer, env: Mapping[str, str], folder: Path, found: list[Finding], wrong: set[str]
) -> Resolved:
    inside, said = asked.get("folder", ("", "current directory"))
    asked["folder"] = (folder / inside, said)
    notes = _not_done(asked)
    asked.pop("launcher", None)  # several processes of a run here are torchrun's
    values = our_defaults() | asked
    one_of_each(values)
    found += _processes(values, env)
    values |= fill_defaults({key: value for key, (value, _) in values.items()}, undecided(values), HERE)
    if values["python"][1] != FLAG:
        values["python"] = _python(values)
    spec = checked_spec(
        values, command="rankup run", where="rankup run", asked={*asked} - wrong, wrong=wrong, found=found
    )
    raise_errors([*found, *collect({**SECRETS, **_PROGRAM}, JobFacts.of(spec, HERE, values, env))])
    keys = [k for k in in_order(spec) if k in _OURS or values[k][1] != "default"]
    return Resolved(spec, HERE, {key: values[key][1] for key in keys}, notes)


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


def _processes(values: Layer, env: Mapping[str, str]) -> Iterator[Finding]:
    """One process for each GPU that the job asks for, else that is visible; one if there is none. In place."""
    gpus, given = values["gpus_per_node"][0], values["nproc_per_node"]
    if given[1] == "default" and isinstance(gpus, int):
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


def _folder(facts: JobFacts) -> Iterator[Finding]:
    if not facts.spec.folder.is_dir():
        yield Finding(
            "no-such-folder",
            Severity.ERROR,
            f"the job runs in {str(facts.spec.folder)!r}, which does not exist",
            place=facts.origin["folder"],
            fix="name the script: rankup run [--resume RUN] script.py …",
        )


def _script(facts: JobFacts) -> Iterator[Finding]:
    spec = facts.spec
    first = spec.command[0]
    path = spec.folder / first
    search = spec.env.get("PATH", facts.env.get("PATH"))
    if first == "-m" or not spec.folder.is_dir():
        return
    is_there = path.exists() if spec.is_python else shutil.which(path if "/" in first else first, path=search)
    if not is_there and (spec.is_python or not path.is_file()):
        yield Finding(
            "script-not-found",
            Severity.ERROR,
            f"there is no script {first!r}{nearest_script(Path(first), spec.folder)}",
            place=f"looked in {path.parent}",
        )
    elif not is_there:
        yield Finding(
            "script-not-executable",
            Severity.ERROR,
            f"{first!r} is neither a Python script nor executable",
            fix=f"chmod +x {first}, or name the program that runs it",
        )


def _module(facts: JobFacts) -> Iterator[Finding]:
    spec = facts.spec
    if spec.command[0] != "-m":
        return
    if len(spec.command) == 1:
        usage = "rankup run -m package.module"
        yield Finding("no-script", Severity.ERROR, "-m requires the name of a module", fix=usage)
    elif spec.python == sys.executable and not has_module(spec.command[1], [str(spec.folder), *sys.path]):
        message = f"there is no module {spec.command[1]!r} here"
        yield Finding("module-not-found", Severity.ERROR, message, place=str(spec.folder))


def _torch(facts: JobFacts) -> Iterator[Finding]:
    spec = facts.spec
    if (
        spec.launcher == "torchrun"
        and spec.python == sys.executable
        and not importlib.util.find_spec("torch")
    ):
        yield Finding(
            "torch-missing",
            Severity.ERROR,
            "several processes require torch (torchrun starts them), and this Python does not have it",
            place=spec.python,
            fix="pip install 'rankup[train]', or install rankup into the environment that has torch; "
            "one process runs without",
        )


_PROGRAM: Mapping[str, Source[JobFacts]] = {
    "no-such-folder": _folder,
    "script-not-found": _script,
    "module-not-found": _module,
    "torch-missing": _torch,
}
