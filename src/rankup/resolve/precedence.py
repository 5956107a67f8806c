"""From flags, a job.toml, a site and defaults to one job: the first of them that says something decides.

A site's conditional defaults (``when.gpu``) win over its plain ones. Values that nobody gave are derived from
the others (``fill_defaults``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rankup.errors import RankupError
from rankup.findings.engine import collect
from rankup.findings.error import FindingsError, findings_of, raise_errors
from rankup.findings.finding import Finding
from rankup.resolve.advice import ADVICE
from rankup.resolve.checks import VARIABLES, checked_job
from rankup.resolve.job_toml import check_job_file, job_file
from rankup.resolve.origins import OUR_DEFAULTS, Layer, file_layer, layer
from rankup.resolve.program import PROGRAM
from rankup.resolve.resolved import FLAG, Resolved
from rankup.resolve.site_limits import SITE_LIMITS
from rankup.sites.lookup import choose_site
from rankup.sites.site import Condition, Site
from rankup.spec.jobspec import RUN_ONLY

# Stands in for a site that is not known, so that the values that were given can be checked.
_UNKNOWN_SITE = Site(name="unknown", scheduler="local")


def resolve(
    flags: Mapping[str, Any],
    *,
    command: tuple[str, ...],
    file: Path | None,
    site: str | None,
    env: Mapping[str, str],
    folder: Path,
    ignore: Collection[str] = (),
) -> Resolved:
    """The job that is asked for. Raises ``FindingsError`` with everything that can be seen to be wrong with it.

    ``flags`` by the keys of ``JobSpec``; ``command`` as tokens, or a job.toml, empty where ``file`` has it; ``site`` by
    name or None; ``folder`` is the current directory. ``ignore`` holds codes of advice to leave out.
    """
    if command and command[0].endswith(".toml"):
        file, command = job_file(command, file), ()
    tables, found, wrong = (
        check_job_file(file) if file else ({"job": {}, "site": {}, "origin": {}}, [], set())
    )
    written = tables["site"].get("name")
    chosen, why = _site_of(site or written, env, folder, FLAG if site else str(file), found)
    # What `rankup run` wrote names no site: what followed from its machine does not hold here.
    changed = bool(flags or site or not written)
    asked = file_layer(tables, str(file), changed=changed) | layer(flags, FLAG)
    asked = {key: value for key, value in asked.items() if key not in RUN_ONLY}
    if command:
        asked["command"] = (_by_this_python(command), "command line")
    inside, said = asked.get("folder", ("", "current directory"))
    asked["folder"] = (folder / inside, said)
    there = chosen or _UNKNOWN_SITE
    job = checked_job(
        _over_site(there, asked),
        there,
        command="rankup submit",
        where=f"site {chosen.name}" if chosen else "",
        asked={*asked} - wrong,
        env=env,
        wrong=wrong,
        found=found,
    )
    origin = {key: said for key, said in job.origin.items() if key not in RUN_ONLY}
    job = replace(job, origin={"site": why, **origin})
    found += collect({**PROGRAM, **VARIABLES, **(SITE_LIMITS if chosen else {})}, job)
    if found or chosen is None:
        raise FindingsError([*found, *(collect(ADVICE, job, ignore=ignore) if chosen else [])])
    return job


def check_defaults(site: Site) -> None:
    """Raises ``FindingsError`` if a job cannot have a site's defaults: with GPUs or without, on one node or on two."""
    site = site.model_copy(update={"required": ()})
    where = f"site {site.name}"
    found: list[Finding] = []
    for gpus in (0, site.node.gpus or 1):
        for nodes in (1,) if site.scheduler == "local" else (1, 2):
            shape = {"command": ("true",), "folder": Path("/"), "gpus_per_node": gpus, "nodes": nodes}
            values = _over_site(site, layer(shape, "trial"))
            job = checked_job(
                values, site, command="rankup submit", where=where, asked=shape, env={}, found=found
            )
            found += collect(SITE_LIMITS, job)
    raise_errors(found)


def _site_of(
    name: str | None, env: Mapping[str, str], folder: Path, origin: str, found: list[Finding]
) -> tuple[Site | None, str]:
    """The site that is meant and why; None if it is unknown, or its profile wrong, which is added to ``found``."""
    try:
        return choose_site(name, env, folder, origin=origin)
    except RankupError as error:
        found += findings_of(error)
        return None, ""


def _over_site(site: Site, asked: Layer) -> Layer:
    """What was ``asked`` for over the site's defaults over ours."""
    values = OUR_DEFAULTS | layer(site.defaults, f"site {site.name}")
    shape = values | asked
    gpus, many = _count(shape["gpus_per_node"][0]), _count(shape["nodes"][0]) > 1
    conditions: list[Condition] = ["gpu" if gpus else "cpu", "many_nodes" if many else "one_node"]
    for condition in conditions:
        values |= layer(site.when.get(condition, {}), f"site {site.name}, when.{condition}")
    return values | asked


def _by_this_python(command: tuple[str, ...]) -> tuple[str, ...]:
    """``rankup train …`` as a module: the job's PATH need not hold the program of this environment."""
    return ("-m", *command) if command[0] == "rankup" else command


def _count(value: Any) -> int:
    """A number to decide by; ``JobSpec`` refuses any other value."""
    return value if isinstance(value, int) else 0
