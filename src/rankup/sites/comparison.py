"""A profile beside the cluster that it describes: what differs, and a profile that says it right."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rankup.core.toml_file import toml_text
from rankup.core.units import parse_duration, parse_size
from rankup.sites.discovery import Survey, largest, tables
from rankup.sites.site import Site, Sources

# What the scheduler calls memory is less than what a page says: its own share is taken off.
_MEMORY_SHARE = 0.9


@dataclass(frozen=True)
class Difference:
    """The profile says ``said`` at ``key`` of ``table``.

    ``there`` is the cluster's value, None if it has none; ``words`` then say what is wrong.
    """

    table: str
    key: str
    said: Any
    there: Any
    words: str = ""

    @property
    def place(self) -> str:
        return f"{self.table}.{self.key}" if self.table else self.key

    def line(self, source: Sources) -> str:
        """For people, with the time at which the profile's value was read."""
        seen = source.of_key(self.place).seen
        read = f" (of {seen})" if seen else ""
        here = self.words or f"{_shown(self.there)} here"
        return f"{self.place}: {_shown(self.said)} in the profile{read}, {here}"


def compare(site: Site, survey: Survey, exists: Callable[[str], bool]) -> list[Difference]:
    """Where ``survey`` contradicts the profile. ``exists`` says whether a path is there."""
    queue = site.when.get("gpu", {}).get("queue", site.defaults.get("queue"))
    kinds = [kind for kind in survey.queues if kind.name == queue]
    there = tables(site.name, replace(survey, node=largest(kinds)) if kinds else survey)
    found = [
        *_values("", {"scheduler": site.scheduler}, there[""]),
        *_node(site, there["node"]),
        *_values("slurm", {"version": site.slurm.version}, there.get("slurm", {})),
        *_expedite(site, survey),
        *_values("queue_nodes", site.queue_nodes, there.get("queue_nodes", {})),
        *_times(site.queue_time, there.get("queue_time", {})),
        *_queues(site, survey),
        *_modules(site, survey.seen.modules),
        *_others(site, survey, exists),
    ]
    return [one for one in found if one.said not in ("", None, ())]


def patch(site: Site, survey: Survey, found: Sequence[Difference]) -> str:
    """A profile that extends ``site`` with the cluster's values; what it has no value for is a comment."""
    seen = survey.seen
    changed: dict[str, dict[str, Any]] = {"": {"extends": site.name}}
    for one in found:
        if one.there is not None:
            changed.setdefault(one.table, {})[one.key] = one.there
    sources = {f'source.of."{name}"': {"page": seen.source, "seen": seen.day} for name in changed if name}
    open_ends = [f"# {one.place}: {one.words}\n" for one in found if one.there is None]
    return toml_text({**changed, **sources}) + "".join(["\n", *open_ends] if open_ends else [])


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _values(table: str, said: Mapping[str, Any], there: Mapping[str, Any]) -> Iterator[Difference]:
    for key, value in said.items():
        if there.get(key) is not None and there[key] != value:
            yield Difference(table, key, value, there[key])


def _expedite(site: Site, survey: Survey) -> Iterator[Difference]:
    if survey.seen.version and site.slurm.expedite != survey.seen.expedites:
        yield Difference("slurm", "expedite", site.slurm.expedite, survey.seen.expedites)


def _node(site: Site, there: Mapping[str, Any]) -> Iterator[Difference]:
    node = site.node
    yield from _values("node", {"gpus": node.gpus or None, "login_arch": node.login_arch}, there)
    # More cores may be hyperthreads, which a scheduler counts as cores.
    if node.cpus and there.get("cpus") and there["cpus"] < node.cpus:
        yield Difference("node", "cpus", node.cpus, there["cpus"])
    memory = parse_size(there["memory"]) if there.get("memory") else None
    if node.memory and memory and memory < _MEMORY_SHARE * parse_size(node.memory):
        yield Difference("node", "memory", node.memory, there["memory"])


def _times(said: Mapping[str, str], there: Mapping[str, str]) -> Iterator[Difference]:
    for queue, time in said.items():
        if queue in there and parse_duration(there[queue]) != parse_duration(time):
            yield Difference("queue_time", queue, time, there[queue])


def _defaults(site: Site, key: str) -> Iterator[tuple[str, str, Any]]:
    """Where the profile gives jobs a value for ``key``: table, key, value."""
    for table, values in {
        "defaults": site.defaults,
        **{f"when.{c}": v for c, v in site.when.items()},
    }.items():
        if values.get(key):
            yield table, key, values[key]


def _queues(site: Site, survey: Survey) -> Iterator[Difference]:
    names = {queue.name for queue in survey.queues if queue.name}
    named = [*_defaults(site, "queue"), *(("queue_nodes", queue, queue) for queue in site.queue_nodes)]
    for table, key, queue in named:
        if names and queue not in names:
            yield Difference(table, key, queue, None, f"no such queue here: {', '.join(sorted(names))}")


def _modules(site: Site, there: Sequence[str]) -> Iterator[Difference]:
    """A list of modules in which one is missing, with the newest version of that name in its place."""
    if not there:
        return
    named = [*_defaults(site, "modules"), ("fabric", "modules", site.fabric.modules)]
    for table, key, modules in named:
        instead = [_module(module, there) for module in modules]
        if missing := [module for module, other in zip(modules, instead, strict=True) if not other]:
            yield Difference(table, key, list(modules), None, f"no such module here: {', '.join(missing)}")
        elif instead != list(modules):
            yield Difference(table, key, list(modules), instead)


def _module(name: str, there: Sequence[str]) -> str:
    """``name`` if it can be loaded, else the newest version of the same module, or ""."""
    if name in there or any(one.startswith(f"{name}/") for one in there):
        return name
    versions = [one for one in there if one.rpartition("/")[0] == name.rpartition("/")[0] != ""]
    return max(versions, key=_numbers, default="")


def _numbers(module: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", module.rpartition("/")[2])]


def _others(site: Site, survey: Survey, exists: Callable[[str], bool]) -> Iterator[Difference]:
    seen = survey.seen
    runtime = site.containers.runtime
    if any(_defaults(site, "container")) and runtime not in seen.runtimes:
        other = seen.runtimes[0] if seen.runtimes else None
        yield Difference("containers", "runtime", runtime, other, "" if other else "not installed here")
    interface = site.node.interface
    if interface and seen.interfaces and interface not in seen.interfaces:
        yield Difference("node", "interface", interface, None, f"this host has {', '.join(seen.interfaces)}")
    paths = [*_defaults(site, "container"), ("", "bad_nodes", site.bad_nodes)]
    for table, key, path in paths:
        if path.startswith("/") and not exists(path):
            yield Difference(table, key, path, None, "no such file here")
