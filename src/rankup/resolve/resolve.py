"""From flags, a job.toml, a site and defaults to one job: the first of them that says something decides.

A site's conditional defaults (``when.gpu``) win over its plain ones. What nobody said is derived (``defaults.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from rankup.errors import RankupError
from rankup.findings.engine import collect
from rankup.findings.error import findings_of, raise_errors
from rankup.findings.finding import Finding
from rankup.resolve.checks import UNKNOWN_SITE, check_job, checked_spec
from rankup.resolve.defaults import absolute_paths, fill_defaults
from rankup.resolve.facts import JobFacts
from rankup.resolve.job_toml import Tables, check_job_file
from rankup.resolve.resolved import Resolved
from rankup.resolve.site_limits import SITE_LIMITS
from rankup.sites.lookup import choose_site
from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec

__all__ = ["Resolved", "check_defaults", "resolve"]

# A value and where it came from, by key; variables are keys of their own: ``env.NAME``.
Layer = dict[str, tuple[Any, str]]

_NOTHING = (
    "cpus_per_task",
    "mem",
    "time",
    "stop_before",
)  # None where nobody asked; an empty text asks for that
_FLAG = "flag"


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

    ``flags`` by the keys of ``JobSpec``; ``command`` as tokens, empty where ``file`` (a job.toml) has it; ``site`` by
    name or None; ``folder`` is the current directory. ``ignore`` holds codes of advice to leave out.
    """
    found: list[Finding] = []
    tables, wrong = _tables_of(file, found)
    written = tables["site"].get("name")
    chosen, why = _site_of(site or written, env, folder, _FLAG if site else str(file), found)
    asked = _from_file(tables, str(file), changed=bool(flags or site)) | _layer(flags, _FLAG)
    if command:
        asked["command"] = (_by_this_python(command), "command line")
    inside, said = asked.get("folder", ("", "current directory"))
    asked["folder"] = (folder / inside, said)
    values = _over_site(chosen or UNKNOWN_SITE, asked)
    _one_of_each(values)
    shape = {key: value for key, (value, _) in values.items()}
    values |= fill_defaults(shape, _undecided(values), chosen or UNKNOWN_SITE)
    origin = {key: source for key, (_, source) in values.items()}
    spec = checked_spec(_plain(values), origin, chosen, asked={*asked} - wrong, wrong=wrong, found=found)
    check_job(spec, chosen, origin, env, found, ignore=ignore)
    assert chosen is not None  # else check_job has raised what was found
    return Resolved(spec, chosen, {"site": why} | {key: values[key][1] for key in _in_order(spec)})


def check_defaults(site: Site) -> None:
    """Raises ``FindingsError`` if a job cannot have a site's defaults: with GPUs or without, on one node or on two."""
    site = site.model_copy(update={"required": ()})
    found: list[Finding] = []
    for gpus in (0, site.node.gpus or 1):
        for nodes in (1,) if site.scheduler == "local" else (1, 2):
            shape = {"command": ("true",), "folder": Path("/"), "gpus_per_node": gpus, "nodes": nodes}
            values = _over_site(site, _layer(shape, "trial"))
            values |= fill_defaults(
                {key: value for key, (value, _) in values.items()}, _undecided(values), site
            )
            origin = {key: source for key, (_, source) in values.items()}
            spec = checked_spec(_plain(values), origin, site, asked=shape, wrong=(), found=found)
            found += collect(SITE_LIMITS, JobFacts(spec, site, origin, {}))
    raise_errors(found)


def _tables_of(file: Path | None, found: list[Finding]) -> tuple[Tables, set[str]]:
    """The tables of a job.toml, without its mistakes, which are added to ``found``; and the keys of wrong values."""
    tables: Tables = {"job": {}, "site": {}, "origin": {}}
    if file is None:
        return tables, set()
    tables, wrong, keys = check_job_file(file)
    found += wrong
    return tables, keys


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
    ours = {
        key: field.get_default(call_default_factory=True)
        for key, field in JobSpec.model_fields.items()
        if not field.is_required()
    }
    values = _layer(ours, "default") | _layer(site.defaults, f"site {site.name}")
    shape = values | asked
    conditions = (
        "gpu" if _count(shape["gpus_per_node"][0]) else "cpu",
        "many_nodes" if _count(shape["nodes"][0]) > 1 else "one_node",
    )
    for condition in conditions:
        values |= _layer(site.when.get(condition, {}), f"site {site.name}, when.{condition}")  # type: ignore[call-overload]
    return values | asked


def _layer(values: Mapping[str, Any], origin: str) -> Layer:
    layer = {key: (value, origin) for key, value in values.items() if key != "env"}
    layer |= {f"env.{name}": (value, origin) for name, value in values.get("env", {}).items()}
    return {key: (None, o) if v == "" and key in _NOTHING else (v, o) for key, (v, o) in layer.items()}


def _from_file(tables: Mapping[str, Any], path: str, *, changed: bool) -> Layer:
    """What a job.toml says.

    A flag beside one that rankup wrote changes what follows from it as well: what the site had chosen, and what
    was derived, is then decided anew.
    """
    layer = {}
    for key, (value, _) in _layer(tables["job"], path).items():
        origin = str(tables["origin"].get(key, path))
        follows = origin in ("default", "derived") or origin.startswith("site ")
        if not (follows and changed):
            layer[key] = (value, origin if follows else path)
    return layer


def _by_this_python(command: tuple[str, ...]) -> tuple[str, ...]:
    """``rankup train …`` as a module: the job's PATH need not hold the program of this environment."""
    return ("-m", *command) if command[0] == "rankup" else command


def _undecided(values: Layer) -> frozenset[str]:
    return frozenset(JobSpec.model_fields) - {k for k, (_, origin) in values.items() if origin != "default"}


def _in_order(spec: JobSpec) -> list[str]:
    keys = [key for key in JobSpec.model_fields if key != "env"]
    return [*keys, *(f"env.{name}" for name in spec.env)]


def _one_of_each(values: Layer) -> None:
    """A variable is plain or secret: a flag decides against whatever was said before, in place."""
    secrets, origin = values["secrets"]
    plain = [name for name in secrets if f"env.{name}" in values]
    for name in plain:
        if values[f"env.{name}"][1] == _FLAG:
            values["secrets"] = (tuple(s for s in values["secrets"][0] if s != name), origin)
        else:
            del values[f"env.{name}"]


def _count(value: Any) -> int:
    """A number to decide by; what is none is refused by ``JobSpec``."""
    return value if isinstance(value, int) else 0


def _plain(values: Layer) -> dict[str, Any]:
    """The values by the keys of ``JobSpec``, with absolute paths."""
    plain = {key: value for key, (value, _) in values.items() if not key.startswith("env.")}
    plain["env"] = {key[4:]: value for key, (value, _) in values.items() if key.startswith("env.")}
    return absolute_paths(plain)
