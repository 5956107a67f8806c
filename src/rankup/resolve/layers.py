"""Values and their origins in layers, the later over the earlier; and the values that follow from others."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankup.core.rundir import default_name
from rankup.core.units import parse_size
from rankup.resolve.resolved import FLAG, follows
from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec

# A value and where it came from, by key; variables are keys of their own: ``env.NAME``.
Layer = dict[str, tuple[Any, str]]

# None if nobody asked; an empty text asks for that.
_NOTHING = ("cpus_per_task", "mem", "time", "stop_before", "threads")
_DERIVED = "derived"


def layer(values: Mapping[str, Any], origin: str) -> Layer:
    """``values`` by the keys of ``JobSpec``, all of one ``origin``."""
    made = {key: (value, origin) for key, value in values.items() if key != "env"}
    made |= {f"env.{name}": (value, origin) for name, value in values.get("env", {}).items()}
    return {key: (None, o) if v == "" and key in _NOTHING else (v, o) for key, (v, o) in made.items()}


# What ``JobSpec`` itself says of each key.
OUR_DEFAULTS = layer(
    {
        key: field.get_default(call_default_factory=True)
        for key, field in JobSpec.model_fields.items()
        if not field.is_required()
    },
    "default",
)


def file_layer(tables: Mapping[str, Any], path: str, *, changed: bool) -> Layer:
    """What a job.toml says.

    A flag beside one that rankup wrote changes what follows from it as well: what the site had chosen, and what
    was derived, is then decided anew.
    """
    made = {}
    for key, (value, _) in layer(tables["job"], path).items():
        origin = str(tables["origin"].get(key, path))
        if not (follows(origin) and changed):
            made[key] = (value, origin if follows(origin) else path)
    return made


def merge(below: Layer, above: Layer) -> Layer:
    """Both layers as one. A variable is plain or secret: a flag decides against any other origin."""
    values = below | above
    secrets, origin = values["secrets"]
    for name in [name for name in secrets if f"env.{name}" in values]:
        if values[f"env.{name}"][1] == FLAG:
            values["secrets"] = (tuple(s for s in values["secrets"][0] if s != name), origin)
        else:
            del values[f"env.{name}"]
    return values


def fill_defaults(values: Layer, site: Site) -> None:
    """Add what follows from the other values for keys that nobody has decided."""

    def derive(key: str, value: Any, origin: str = _DERIVED) -> None:
        if values.get(key, (None, "default"))[1] == "default":
            values[key] = (value, origin)

    if command := values.get("command", ((), ""))[0]:
        derive("name", default_name(tuple(map(str, command))))
    nodes, gpus = values["nodes"][0], values["gpus_per_node"][0]
    if not all(isinstance(count, int) for count in (nodes, gpus, values["nproc_per_node"][0])):
        return  # JobSpec says what is wrong with them
    derive("nproc_per_node", max(1, gpus))
    several = nodes * values["nproc_per_node"][0] > 1 or values["max_restarts"][0]
    torchrun = "torchrun" if "torchrun" in site.launchers else site.launchers[0]
    derive("launcher", torchrun if several else "single")
    if gpus and site.node.mem_per_gpu:
        derive("mem", parse_size(site.node.mem_per_gpu) * gpus)
    if not any(values[key][0] for key in ("venv", "conda", "container", "modules")):
        # By its path: an inherited conda or PATH would find another one on the node.
        derive("python", sys.executable, "this Python")


def plain(values: Layer) -> dict[str, Any]:
    """The values by the keys of ``JobSpec``. Relative paths begin at ``folder``, in which the command runs.

    Names of conda environments, addresses of images (``docker://…``) and what holds a ``$`` for the job's shell stay.
    """
    made = {key: value for key, (value, _) in values.items() if not key.startswith("env.")}
    made["env"] = {key[4:]: value for key, (value, _) in values.items() if key.startswith("env.")}

    def absolute(text: Any) -> Any:
        if not isinstance(text, str) or not text or "$" in text or "://" in text:
            return text
        return str(made["folder"] / Path(text).expanduser())

    def source(bind: Any) -> Any:
        path, colon, target = str(bind).partition(":")
        return absolute(path) + colon + target

    made |= {key: absolute(made[key]) for key in ("venv", "container")}
    if "/" in str(made["conda"]):
        made["conda"] = absolute(made["conda"])
    made["binds"] = tuple(map(source, made["binds"]))
    made["runs_root"] = made["folder"] / Path(made["runs_root"]).expanduser()
    return made


def origins(values: Layer) -> dict[str, str]:
    """Where each value came from, in the order of the fields; the variables are the last."""
    fields = [key for key in JobSpec.model_fields if key in values]
    return {key: values[key][1] for key in (*fields, *(key for key in values if key.startswith("env.")))}
