"""``Facts``: all that judges see, of all nodes and ranks, as plain dicts that come from JSON."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rankup.core.hostlist import compress
from rankup.doctor.contract import Document

Part = Mapping[str, Any]
_NONE: Part = {}
_NAMED = 6  # hosts or ranks that a message lists one by one


@dataclass(frozen=True)
class Facts:
    """``hosts`` are those that were to take part, by node rank; ``nodes`` holds what came: node → part → facts.

    ``ranks`` are the ranks' own facts, in any order: two may say the same number. ``counts`` are the ranks that each
    node should have, () if nobody knows. ``launch`` says how the agents were started, and ``here`` what the
    machine is that started them.
    """

    hosts: tuple[str, ...]
    nodes: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    ranks: Sequence[Part] = ()
    counts: tuple[int, ...] = ()
    launch: Part = field(default_factory=dict)
    here: Part = field(default_factory=dict)

    @classmethod
    def gathered(cls, hosts: tuple[str, ...], documents: Iterable[Document], **more: Any) -> Facts:
        nodes: dict[int, dict[str, Any]] = {}
        ranks: list[Part] = []
        for one in documents:
            node = one.get("node")
            if not isinstance(node, int) or not 0 <= node < len(hosts):
                continue
            if "rank" in one:
                ranks.append({**one["facts"], "node": node})
            elif one.get("part") != "end" or "end" not in nodes.get(node, {}):  # that of the first round
                nodes.setdefault(node, {})[str(one.get("part"))] = one.get("facts")
                late = one.get("arrived", 0.0) - one.get("time", 0.0)
                nodes[node]["late"] = min(late, nodes[node].get("late", late))
        return cls(hosts, nodes, sorted(ranks, key=lambda one: (int(one["rank"]), one["node"])), **more)

    def part(self, node: int, name: str) -> Part:
        """The facts of a probe of a node; empty if they did not come, or it failed."""
        found = self.nodes.get(node, _NONE).get(name)
        return found if isinstance(found, Mapping) and "probe_error" not in found else _NONE

    def parts(self, name: str) -> dict[int, Part]:
        """The same of all nodes that have it, in the order of the node ranks."""
        found = {node: self.part(node, name) for node in sorted(self.nodes)}
        return {node: part for node, part in found.items() if part}

    @cached_property
    def silent(self) -> frozenset[int]:
        """Nodes from which nothing came."""
        return frozenset(range(len(self.hosts))) - frozenset(self.nodes)

    @cached_property
    def ranks_of(self) -> Mapping[int, list[Part]]:
        """Node → its ranks, in the order of their local ranks."""
        found: dict[int, list[Part]] = {}
        for one in sorted(self.ranks, key=lambda one: int(one.get("local_rank", 0))):
            found.setdefault(one["node"], []).append(one)
        return dict(sorted(found.items()))

    def host(self, node: int) -> str:
        return self.hosts[node]

    def named(self, nodes: Iterable[int]) -> str:
        """Hosts for a message: all of them if they are few, else as a host list."""
        hosts = [self.hosts[node] for node in sorted(set(nodes))]
        return listed(hosts) if len(hosts) <= _NAMED else f"{len(hosts)} hosts ({compress(hosts)})"


def listed(words: Collection[object]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    *others, last = map(str, words)
    return f"{', '.join(others)} and {last}" if others else last


def ranks_named(ranks: Collection[int]) -> str:
    shown = sorted(set(ranks))
    if len(shown) > _NAMED:
        return f"{len(shown)} ranks ({compress([str(one) for one in shown])})".replace("[", "").replace(
            "]", ""
        )
    return f"rank {shown[0]}" if len(shown) == 1 else f"ranks {listed(shown)}"
