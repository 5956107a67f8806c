"""``Plan``: what every agent is told, in one variable of its environment."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from rankup.core.hostlist import compress, expand
from rankup.world.ports import FIRST_PORT, LAST_PORT

VARIABLE = "RANKUP_DOCTOR"
_CANDIDATES = 4  # ports of a node: another job may hold the first


@dataclass(frozen=True)
class Plan:
    """``tag`` marks the lines of this examination, ``token`` opens the agents' ports; both are random.

    ``hosts`` are in the order of the node ranks. ``window`` are the seconds that an agent has for its facts. ``nproc``
    is the number of ranks of a node, 0 for one per GPU. ``counts`` are the tasks that each node should have, if a
    launcher has started us as tasks: they leave their facts in ``tasks``, a folder of each node's own.
    ``compute`` asks for the second round, with tensors: all ranks meet at ``meet``; ``addresses`` are the nodes' own.
    ``folder`` is the shared directory to probe, and ``mark`` the name of our folder in it.
    """

    hosts: tuple[str, ...]
    folder: str
    window: float = 6.0
    nproc: int = 0
    counts: tuple[int, ...] = ()
    tasks: str = ""
    script: str = ""
    python: str = ""
    port: int = 0
    compute: bool = False
    meet: str = ""
    addresses: tuple[str, ...] = ()
    tag: str = field(default_factory=lambda: secrets.token_hex(4))
    token: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def mark(self) -> str:
        return f".rankup-doctor-{self.tag}"

    def ports(self, node: int) -> list[int]:
        """Where ``node`` may listen; all nodes derive the same, without a message."""
        digests = [hashlib.sha256(f"{self.token}/{node}/{i}".encode()).digest() for i in range(_CANDIDATES)]
        return [FIRST_PORT + int.from_bytes(one[:8], "big") % (LAST_PORT - FIRST_PORT + 1) for one in digests]

    def variables(self) -> dict[str, str]:
        return {VARIABLE: json.dumps({**asdict(self), "hosts": compress(self.hosts)})}

    @classmethod
    def read(cls, env: Mapping[str, str]) -> Plan:
        values = json.loads(env[VARIABLE])
        lists = {name: tuple(values[name]) for name in ("counts", "addresses")}
        return cls(**{**values, **lists, "hosts": tuple(expand(values["hosts"]))})
