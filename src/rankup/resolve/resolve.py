"""From flags, a job.toml, a site and defaults to one job: the first of them that says something decides.

A site's conditional defaults (``when.gpu``) win over its plain ones. What nobody said is derived (``defaults.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankup.errors import RankupError
from rankup.resolve.job_toml import read_job_file
from rankup.resolve.layers import Layer, complete, file_layer, in_order, layer, our_defaults
from rankup.resolve.program import check_program
from rankup.resolve.resolved import FLAG, Resolved
from rankup.resolve.site_limits import check_fits, check_secrets
from rankup.sites.lookup import choose_site
from rankup.sites.site import Site
from rankup.spec.jobspec import BY_HAND, JobSpec

__all__ = ["Resolved", "check_defaults", "resolve"]


def resolve(
    flags: Mapping[str, Any],
    *,
    command: tuple[str, ...],
    file: Path | None,
    site: str | None,
    env: Mapping[str, str],
    folder: Path,
) -> Resolved:
    """The job that is asked for. Raises ``RankupError`` for whatever can be seen to be wrong before it is submitted.

    ``flags`` by the keys of ``JobSpec``; ``command`` as tokens, empty where ``file`` (a job.toml) has it; ``site`` by
    name or None; ``folder`` is the current directory.
    """
    tables = read_job_file(file) if file else {"job": {}, "site": {}, "origin": {}}
    written = tables["site"].get("name")
    chosen, why = choose_site(site or written, env, folder, origin=FLAG if site else str(file))
    # What `rankup run` wrote names no site: what followed from its machine does not hold here.
    changed = bool(flags or site or not written)
    asked = file_layer(tables, str(file), changed=changed) | layer(flags, FLAG)
    asked = {key: value for key, value in asked.items() if key not in BY_HAND}
    if command:
        asked["command"] = (_by_this_python(command), "command line")
    inside, said = asked.get("folder", ("", "current directory"))
    asked["folder"] = (folder / inside, said)
    values = _over_site(chosen, asked)
    spec = complete(values, chosen, command="rankup submit", where=f"site {chosen.name}")
    _check_text(spec)
    origin = {"site": why} | {key: values[key][1] for key in in_order(spec) if key not in BY_HAND}
    check_fits(spec, chosen, origin)
    check_secrets(spec.secrets, env)
    check_program(spec, env)
    return Resolved(spec, chosen, origin)


def check_defaults(site: Site) -> None:
    """Raises ``RankupError`` where a job cannot have a site's defaults: with GPUs or without, on one node or on two."""
    site = site.model_copy(update={"required": ()})
    for gpus in (0, site.node.gpus or 1):
        for nodes in (1,) if site.scheduler == "local" else (1, 2):
            shape = {"command": ("true",), "folder": Path("/"), "gpus_per_node": gpus, "nodes": nodes}
            values = _over_site(site, layer(shape, "trial"))
            spec = complete(values, site, command="rankup submit", where=f"site {site.name}")
            check_fits(spec, site, {"launcher": values["launcher"][1]})


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


def _check_text(spec: JobSpec) -> None:
    """A script and a job.toml are UTF-8; arguments that are no text can be run here, and not be written down."""
    for text in (
        *spec.command,
        *spec.env.values(),
        *spec.pre,
        spec.python,
        str(spec.folder),
        str(spec.runs_root),
    ):
        if any(0xD800 <= ord(c) < 0xE000 for c in text):
            raise RankupError(
                "bad-text",
                f"{text!r} is no UTF-8, which a job's script and its job.toml have to be",
                hint="give it another name; `rankup run` takes it as it is",
            )
