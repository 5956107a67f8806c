"""``job.toml``: a job as a file, written into every run directory, and read where one is given.

``[job]`` holds the keys of ``JobSpec``; ``script`` and ``args`` are a friendlier ``command``. ``[job.env]`` holds
variables, ``[site]`` the site's name, and ``[origin]``, which only rankup writes, where each value came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankup.core.toml_file import read_toml, toml_table
from rankup.core.units import clock, size
from rankup.errors import RankupError
from rankup.resolve.resolved import Resolved
from rankup.spec.job_values import DURATIONS, as_text, check_job_values
from rankup.spec.jobspec import JobSpec
from rankup.spec.validation import check_keys

_TABLES = ("job", "site", "origin")


def read_job_file(path: Path) -> dict[str, dict[str, Any]]:
    """The tables ``job`` (by the keys of ``JobSpec``), ``site`` and ``origin``; empty ones where the file has none."""
    tables = read_toml(path, "job file")
    check_keys(tables, _TABLES, where=str(path))
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise RankupError(
                "bad-job-file", f"{name!r} has to be a table", context=str(path), hint=f"[{name}]"
            )
    job = dict(tables.get("job", {}))
    site = tables.get("site", {})
    check_keys(site, ("name", "scheduler"), where=f"[site] in {path}")
    if not isinstance(site.get("name", ""), str):
        raise RankupError("bad-site", f"name is {site['name']!r}", context=f"[site] in {path}")
    check_keys(job, [*JobSpec.model_fields, "script", "args"], where=f"[job] in {path}")
    check_job_values(job, where=f"[job] in {path}")
    if "script" in job:
        job["command"] = [job.pop("script"), *map(as_text, job.pop("args", []))]
    return {"job": job, "site": site, "origin": tables.get("origin", {})}


def job_toml(resolved: Resolved) -> str:
    """The text of ``job.toml``: every value, and where it came from. Values of secrets are not in it."""
    spec = resolved.spec
    job: dict[str, Any] = {}
    for key in JobSpec.model_fields:
        value = getattr(spec, key)
        if key in DURATIONS:
            job[key] = "" if value is None else clock(value)  # "": none, whatever the site's default
        elif key == "mem":
            job[key] = "" if value is None else size(value)
        elif key != "env":
            job[key] = str(value) if isinstance(value, Path) else value
    site = {"name": resolved.site.name, "scheduler": resolved.site.scheduler}
    tables: dict[str, Mapping[str, Any]] = {
        "job": job, "job.env": spec.env, "site": site, "origin": resolved.origin
    }  # fmt: skip
    return "\n".join(toml_table(name, values) for name, values in tables.items())
