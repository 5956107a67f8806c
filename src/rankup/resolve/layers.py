"""Values and their origins in layers, the later over the earlier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankup.resolve.defaults import absolute_paths, fill_defaults
from rankup.resolve.resolved import FLAG, follows
from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec

# A value and where it came from, by key; variables are keys of their own: ``env.NAME``.
Layer = dict[str, tuple[Any, str]]

# None where nobody asked; an empty text asks for that.
_NOTHING = ("cpus_per_task", "mem", "time", "stop_before", "threads")


def layer(values: Mapping[str, Any], origin: str) -> Layer:
    """``values`` by the keys of ``JobSpec``, all of one ``origin``."""
    made = {key: (value, origin) for key, value in values.items() if key != "env"}
    made |= {f"env.{name}": (value, origin) for name, value in values.get("env", {}).items()}
    return {key: (None, o) if v == "" and key in _NOTHING else (v, o) for key, (v, o) in made.items()}


def our_defaults() -> Layer:
    """What ``JobSpec`` itself says of each key."""
    fields = JobSpec.model_fields.items()
    return layer(
        {key: f.get_default(call_default_factory=True) for key, f in fields if not f.is_required()}, "default"
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


def in_order(spec: JobSpec) -> list[str]:
    """The keys of ``origin``, in the order of the fields."""
    keys = [key for key in JobSpec.model_fields if key != "env"]
    return [*keys, *(f"env.{name}" for name in spec.env)]


def complete(values: Layer, site: Site) -> None:
    """Decide what nobody has decided, in place: each variable is plain or secret, and the rest is derived."""
    secrets, origin = values["secrets"]
    for name in [name for name in secrets if f"env.{name}" in values]:
        # A flag decides against what was given before.
        if values[f"env.{name}"][1] == FLAG:
            values["secrets"] = (tuple(s for s in values["secrets"][0] if s != name), origin)
        else:
            del values[f"env.{name}"]
    undecided = frozenset(JobSpec.model_fields) - {
        k for k, (_, origin) in values.items() if origin != "default"
    }
    values |= fill_defaults({key: value for key, (value, _) in values.items()}, undecided, site)


def plain_values(values: Layer) -> dict[str, Any]:
    """The values by the keys of ``JobSpec``, with absolute paths."""
    plain = {key: value for key, (value, _) in values.items() if not key.startswith("env.")}
    plain["env"] = {key[4:]: value for key, (value, _) in values.items() if key.startswith("env.")}
    return absolute_paths(plain)
