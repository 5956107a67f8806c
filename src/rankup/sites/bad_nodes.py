"""Nodes that have failed, in a file that a team shares (``bad_nodes`` of a profile): a line for each, with an expiry.

``HOST UNTIL BY WHY…``; UNTIL is in epoch seconds. The scripts of jobs append to it (script/parts/bad_nodes.sh), and
SLURM leaves these nodes out; PBS has no such option.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rankup.core.files import locked, write_atomic, writing_to
from rankup.errors import RankupError
from rankup.sites.site import Site

LASTS_S = 7 * 86400


@dataclass(frozen=True)
class BadNode:
    host: str
    until: int  # epoch seconds
    by: str
    why: str

    def line(self) -> str:
        return f"{self.host} {self.until} {self.by} {' '.join(self.why.split())}\n"


def file_of(site: Site) -> Path:
    """Raises RankupError if the profile names no file."""
    if not site.bad_nodes:
        raise RankupError(
            "no-bad-nodes-file",
            f"the profile {site.name!r} names no file of bad nodes",
            hint='bad_nodes = "/project/ours/bad-nodes" in the profile; all of the team may write to it',
        )
    return Path(os.path.expandvars(site.bad_nodes)).expanduser()


def read(path: Path, now: float | None = None) -> list[BadNode]:
    """Those whose time has not passed, the newest line of each host; none if there is no file."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RankupError("bad-nodes-file", f"cannot read {str(path)!r}: {error.strerror}") from error
    found: dict[str, BadNode] = {}
    for host, until, *rest in (line.split(maxsplit=3) for line in lines if len(line.split()) > 1):
        if until.isdecimal() and int(until) > (time.time() if now is None else now):
            by, why, *_ = *rest, "", ""
            found[host] = BadNode(host, int(until), by, why)
    return list(found.values())


def found_by_doctor(report: Path) -> dict[str, str]:
    """Node → the code of the error that the doctor's ``report`` has of it."""
    said = json.loads(report.read_text())
    errors = [one for one in said["findings"] if one["severity"] == "error"]
    named = {host: one["code"] for one in errors for host in re.split(r", | and ", one["place"])}
    return {host: code for host, code in named.items() if host in said["hosts"]}


def add(path: Path, hosts: Sequence[str], why: str, lasts: float = LASTS_S) -> None:
    until = int(time.time() + lasts)
    nodes = [BadNode(host, until, getpass.getuser(), why or "noted by hand") for host in hosts]
    with writing_to(path, "file of bad nodes"), path.open("a") as file:
        file.write("".join(node.line() for node in nodes))


def remove(path: Path, hosts: Sequence[str]) -> None:
    """Also those whose time has passed. Raises RankupError for a host that is not there."""
    with writing_to(path, "file of bad nodes"), locked(path):
        nodes = read(path)
        if missing := set(hosts) - {node.host for node in nodes}:
            raise RankupError(
                "no-bad-node", f"not noted as bad: {', '.join(sorted(missing))}", context=str(path)
            )
        mode = path.stat().st_mode & 0o777
        write_atomic(path, "".join(node.line() for node in nodes if node.host not in hosts), mode=mode)
