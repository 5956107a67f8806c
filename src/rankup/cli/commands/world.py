"""``rankup world``: show what this process knows of its place. Start it as the training script is started."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import sys
from typing import Any

import typer

from rankup.cli.options import JsonOption
from rankup.core.hostlist import compress
from rankup.errors import RankupError
from rankup.world import World
from rankup.world.address import interface_of, rendezvous, route_to
from rankup.world.devices import cpu_affinity, device_of, find_gpus

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_FIELDS = [field.name for field in dataclasses.fields(World) if field.name not in ("hosts", "sources")]


@app.command()
def world(
    as_json: JsonOption = False,
) -> None:
    """Show this process's rank, hosts, launcher and device, and which variable each value comes from.

    Start it the way the training script is started. It does not need torch.
    """
    facts = gather()
    text = json.dumps(facts) if as_json else as_text(facts)
    # One write for all of it: every rank of a launch prints into the same stream.
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def gather() -> dict[str, Any]:
    """The fields of ``World`` and facts of the machine; ``problem`` tells why the ranks would not find each other."""
    me = World.detect()
    gpus = find_gpus()
    facts: dict[str, Any] = {name: getattr(me, name) for name in _FIELDS}
    facts |= {"hosts": list(me.hosts), "sources": dict(me.sources)}
    facts |= {"hostname": platform.node(), "pid": os.getpid()}
    facts |= {"device": device_of(me.local_rank, len(gpus)), "visible_gpus": gpus}
    facts["cpu_affinity"] = compress([str(cpu) for cpu in cpu_affinity()]).strip("[]")
    facts["omp_num_threads"] = os.environ.get("OMP_NUM_THREADS")
    facts |= {"rendezvous": None, "address": None, "interface": None, "problem": None}
    try:
        meeting = rendezvous(me)
        head = meeting.host
        facts["rendezvous"] = f"[{head}]:{meeting.port}" if ":" in head else f"{head}:{meeting.port}"
        facts["address"] = route_to(head)
        facts["interface"] = interface_of(facts["address"])
    except RankupError as error:
        facts["problem"] = f"{error.message}; {error.hint}"
    return facts


def as_text(facts: dict[str, Any]) -> str:
    """The same as one block, a line per fact, with its variable if it comes from the environment."""
    lines = [f"rank {facts['rank']} of {facts['world_size']} on {facts['hostname']}"]
    for name, value in facts.items():
        if name in ("sources", "rank", "world_size", "hostname") or (name == "problem" and value is None):
            continue
        shown = ",".join(value) if isinstance(value, list) else "" if value is None else str(value)
        lines.append(f"  {name:<17}{shown or '-':<24} {facts['sources'].get(name, '')}".rstrip())
    return "\n".join(lines)
