"""Values with their origins, of one source each; and the values that follow from others."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from rankup.core.rundir import default_name
from rankup.core.units import parse_size
from rankup.resolve.resolved import FLAG, FOLLOWS
from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec

# A value and where it came from, by key; variables are keys of their own: ``env.NAME``.
Layer = dict[str, tuple[Any, str]]

# None if nobody asked; an empty text asks for that.
_NOTHING = ("cpus_per_task", "mem", "time", "stop_before", "threads")


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
        if FOLLOWS.fullmatch(origin) is None:
            made[key] = (value, path)
        elif not changed:
            made[key] = (value, origin)
    return made


def fill_defaults(values: Layer, site: Site) -> None:
    """In place: a variable is plain or secret, and what nobody has decided follows from the other values."""
    secrets, origin = values["secrets"]
    for name in [name for name in secrets if f"env.{name}" in values]:
        if values[f"env.{name}"][1] == FLAG:  # which decides against any other origin
            values["secrets"] = (tuple(s for s in values["secrets"][0] if s != name), origin)
        else:
            del values[f"env.{name}"]

    open_keys = {key for key in JobSpec.model_fields if values.get(key, (None, "default"))[1] == "default"}
    command = values.get("command", ((), ""))[0]
    if command and "name" in open_keys:
        values["name"] = (default_name(tuple(map(str, command))), "derived")
    nodes, gpus, nproc = (values[key][0] for key in ("nodes", "gpus_per_node", "nproc_per_node"))
    if not all(isinstance(count, int) for count in (nodes, gpus, nproc)):
        return  # JobSpec says what is wrong with them
    if "nproc_per_node" in open_keys:
        nproc = max(1, gpus)
        values["nproc_per_node"] = (nproc, "derived")
    if "launcher" in open_keys:
        several = nodes * nproc > 1 or values["max_restarts"][0] or values["numa_binding"][0]
        torchrun = "torchrun" if "torchrun" in site.launchers else site.launchers[0]
        values["launcher"] = (torchrun if several else "single", "derived")
    if "mem" in open_keys and gpus and site.node.mem_per_gpu:
        values["mem"] = (parse_size(site.node.mem_per_gpu) * gpus, "derived")
    brings_python = ("venv", "conda", "pixi", "container", "modules")
    if "python" in open_keys and not any(values[key][0] for key in brings_python):
        # By its path: an inherited conda or PATH would find another one on the node.
        values["python"] = (sys.executable, "this Python")
