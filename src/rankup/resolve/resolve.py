"""From flags, a job.toml, a site and defaults to one job: the first of them that says something decides.

A site's conditional defaults (``when.gpu``) win over its plain ones. What nobody said is derived (``defaults.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from rankup.errors import RankupError
from rankup.findings.engine import collect
from rankup.findings.error import findings_of, raise_errors
from rankup.findings.finding import Finding, Severity
from rankup.resolve.checks import UNKNOWN_SITE, check_job, checked_spec
from rankup.resolve.facts import JobFacts
from rankup.resolve.job_toml import Tables, check_job_file
from rankup.resolve.layers import Layer, complete, file_layer, in_order, layer, our_defaults, plain_values
from rankup.resolve.resolved import FLAG, Resolved
from rankup.resolve.site_limits import SITE_LIMITS
from rankup.sites.lookup import choose_site
from rankup.sites.site import Site
from rankup.spec.jobspec import BY_HAND

__all__ = ["Resolved", "check_defaults", "resolve"]


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
    chosen, why = _site_of(site or written, env, folder, FLAG if site else str(file), found)
    # What `rankup run` wrote names no site: what followed from its machine does not hold here.
    changed = bool(flags or site or not written)
    asked = file_layer(tables, str(file), changed=changed) | layer(flags, FLAG)
    asked = {key: value for key, value in asked.items() if key not in BY_HAND}
    if command:
        asked["command"] = (_by_this_python(command), "command line")
    inside, said = asked.get("folder", ("", "current directory"))
    asked["folder"] = (folder / inside, said)
    values = _over_site(chosen or UNKNOWN_SITE, asked)
    complete(values, chosen or UNKNOWN_SITE)
    plain, origin = plain_values(values), {key: source for key, (_, source) in values.items()}
    spec = checked_spec(plain, origin, chosen, asked={*asked} - wrong, wrong=wrong, found=found)
    found += _not_text(plain, origin)
    check_job(spec, chosen, origin, env, found, ignore=ignore)
    assert chosen is not None  # else check_job has raised what was found
    return Resolved(
        spec, chosen, {"site": why} | {key: origin[key] for key in in_order(spec) if key not in BY_HAND}
    )


def check_defaults(site: Site) -> None:
    """Raises ``FindingsError`` if a job cannot have a site's defaults: with GPUs or without, on one node or on two."""
    site = site.model_copy(update={"required": ()})
    found: list[Finding] = []
    for gpus in (0, site.node.gpus or 1):
        for nodes in (1,) if site.scheduler == "local" else (1, 2):
            shape = {"command": ("true",), "folder": Path("/"), "gpus_per_node": gpus, "nodes": nodes}
            values = _over_site(site, layer(shape, "trial"))
            complete(values, site)
            origin = {key: source for key, (_, source) in values.items()}
            spec = checked_spec(plain_values(values), origin, site, asked=shape, wrong=(), found=found)
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
    values = our_defaults() | layer(site.defaults, f"site {site.name}")
    shape = values | asked
    conditions = (
        "gpu" if _count(shape["gpus_per_node"][0]) else "cpu",
        "many_nodes" if _count(shape["nodes"][0]) > 1 else "one_node",
    )
    for condition in conditions:
        values |= layer(site.when.get(condition, {}), f"site {site.name}, when.{condition}")  # type: ignore[call-overload]
    return values | asked


def _by_this_python(command: tuple[str, ...]) -> tuple[str, ...]:
    """``rankup train …`` as a module: the job's PATH need not hold the program of this environment."""
    return ("-m", *command) if command[0] == "rankup" else command


def _count(value: Any) -> int:
    """A number to decide by; what is none is refused by ``JobSpec``."""
    return value if isinstance(value, int) else 0


def _not_text(values: Mapping[str, Any], origin: Mapping[str, str]) -> Iterator[Finding]:
    """Arguments that are bytes and no text can be run here, but not written to a job.toml."""
    for key in ("command", "env", "pre", "python", "folder", "runs_root"):
        value = values.get(key)
        texts = (
            value.values()
            if isinstance(value, dict)
            else value
            if isinstance(value, (list, tuple))
            else [value]
        )
        for text in map(str, texts):
            if any(0xD800 <= ord(c) < 0xE000 for c in text):
                message = f"{text!r} is not valid UTF-8, which job.toml requires"
                yield Finding(
                    f"bad-{key.replace('_', '-')}", Severity.ERROR, message, place=origin.get(key, key)
                )
