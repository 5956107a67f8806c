"""``job.toml``: a job as a file, written into every run directory, and read where one is given.

``[job]`` holds the keys of ``JobSpec``; ``script`` and ``args`` are a friendlier ``command``. ``[job.env]`` holds
variables, ``[stage]`` what is brought to the nodes' disks, ``[site]`` the site's name, and ``[origin]``, which only
rankup writes, where each value came from. That of ``rankup run`` has no site, and no keys that are nothing to such a
run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankup.core.toml_file import read_toml, toml_text
from rankup.core.units import clock, size
from rankup.errors import RankupError
from rankup.findings.error import raise_errors
from rankup.findings.finding import Finding, Severity
from rankup.resolve.resolved import Resolved
from rankup.spec.job_values import DURATIONS, as_text, variables_as_text, wrong_kinds
from rankup.spec.jobspec import JobSpec

_TABLES = ("job", "stage", "site", "origin")


Tables = dict[str, dict[str, Any]]


def read_job_file(path: Path) -> Tables:
    """The tables ``job`` (by the keys of ``JobSpec``), ``site`` and ``origin``; empty ones where the file has none."""
    tables, findings, _ = check_job_file(path)
    raise_errors(findings)
    return tables


def check_job_file(path: Path) -> tuple[Tables, list[Finding], set[str]]:
    """The tables of what is right in the file, everything that is wrong, and the keys of wrong values.

    Raises ``RankupError`` for a file that cannot be read at all.
    """
    from rankup.spec.validation import unknown_keys

    tables = read_toml(path, "job file")
    where = f"[job] in {path}"
    found = [*unknown_keys(tables, _TABLES, where=str(path))]
    for name, table in tables.items():
        if not isinstance(table, dict):
            message = f"{name!r} must be a table"
            found.append(Finding("bad-job-file", Severity.ERROR, message, place=str(path), fix=f"[{name}]"))
    job, stage, site, origin = (_table(tables, name) for name in _TABLES)
    found += unknown_keys(site, ("name", "scheduler"), where=f"[site] in {path}")
    if not isinstance(site.get("name", ""), str):
        message = f"the site's name must be text, got {site.pop('name')!r}"
        found.append(Finding("bad-site", Severity.ERROR, message, place=f"[site] in {path}"))
    known = [*(key for key in JobSpec.model_fields if key not in ("stage", "back")), "script", "args"]
    found += unknown_keys(job, known, where=where)
    wrong = wrong_kinds(job, where=where)
    found += wrong.values()
    job = {key: value for key, value in job.items() if key in known and key not in wrong}
    variables_as_text(job)
    staged = {"back": stage.pop("back")} if "back" in stage else {}
    staged |= {"stage": stage} if stage else {}
    wrong_stage = wrong_kinds(staged, where=f"[stage] in {path}")
    found += wrong_stage.values()
    wrong |= wrong_stage
    job |= {key: value for key, value in staged.items() if key not in wrong}
    args_of = "command" if "command" in job else "" if "script" in job else "nothing"
    if args_of and (other := job.keys() & ({"script", "args"} if args_of == "command" else {"args"})):
        names = " and ".join(sorted(other))
        message = (
            f"command and {names} both say what runs" if args_of == "command" else "args belong to no script"
        )
        found.append(
            Finding("two-commands", Severity.ERROR, message, where, fix="script and args, or command alone")
        )
        job = {key: value for key, value in job.items() if key not in other}
    if "script" in job:
        job["command"] = [job.pop("script"), *map(as_text, job.pop("args", []))]
    return {"job": job, "site": site, "origin": origin}, found, {*wrong}


def job_file(command: tuple[str, ...], other: Path | None) -> Path:
    """The job.toml in place of a command. Raises ``RankupError`` if arguments follow it, or if there is another."""
    file, *more = command
    if other is not None:
        raise RankupError(
            "two-job-files",
            f"{file} is given in place of a script, but the job is that of {other}",
            hint=f"leave {file} out, or name a script",
        )
    if more:
        raise RankupError(
            "options-after-file",
            f"what stands behind {file} would be a script's arguments, and a job.toml has its own",
            context=" ".join(more),
            hint=f"options come first: --name x {file}",
        )
    return Path(file)


def _table(tables: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = tables.get(name, {})
    return dict(table) if isinstance(table, dict) else {}


def job_toml(job: Resolved) -> str:
    """The text of ``job.toml``: every value, and where it came from. Values of secrets are not in it."""
    spec = job.spec
    values = {key: _written(spec, key) for key in _KEYS if key in job.origin}
    tables: dict[str, Mapping[str, Any]] = {"job": values, "job.env": spec.env}
    if spec.stage or spec.back:
        tables["stage"] = {**spec.stage, "back": spec.back}
    if job.site.name:
        tables["site"] = {"name": job.site.name, "scheduler": job.site.scheduler}
    return toml_text({**tables, "origin": job.origin})


def asked_toml(job: Resolved) -> str:
    """A ``job.toml`` with the values that were asked for. Its reader adds the site's defaults."""
    spec = job.spec
    asked = [key for key in job.asked if job.origin[key] not in _OF_HERE]
    if not spec.secrets:  # every --env asks for both kinds
        asked = [key for key in asked if key != "secrets"]
    values = {key: _written(spec, key) for key in _KEYS if key in asked and key != "command"}
    program, *arguments = spec.command
    names_script = program.endswith(".py")
    what = {"script": program, "args": arguments or None} if names_script else {"command": spec.command}
    tables: dict[str, Mapping[str, Any]] = {"job": {**what, **values}}
    if env := {name: value for name, value in spec.env.items() if f"env.{name}" in asked}:
        tables["job.env"] = env
    if staged := {**spec.stage, **({"back": spec.back} if spec.back else {})}:
        tables["stage"] = staged
    return toml_text({**tables, "site": {"name": job.site.name}})


# Origins of what the place decides where a job is asked for.
_OF_HERE = ("current directory", "this Python")
_KEYS = tuple(key for key in JobSpec.model_fields if key not in ("env", "stage", "back"))


def _written(spec: JobSpec, key: str) -> Any:
    value = getattr(spec, key)
    if key in DURATIONS:
        return "" if value is None else clock(value)  # "": none, whatever the site's default
    if key == "mem":
        return "" if value is None else size(value)
    return str(value) if isinstance(value, Path) else value
