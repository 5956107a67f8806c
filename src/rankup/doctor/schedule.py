"""The rounds in which all nodes meet.

One-to-one meetings of n nodes need n − 1 rounds. Here a node opens several connections in a round. Their number doubles
from round to round: in round k node i connects to the nodes i + 2ᵏ … i + 2ᵏ⁺¹ − 1 (modulo n). So ⌈log₂ n⌉ rounds hold
every ordered pair of nodes exactly once, and in a round every node opens as many connections as it gets. The first
connection of each round makes a second schedule, for measurements (``meetings``): in a round every node sends to one
other and receives from one other.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Meeting:
    """What a node does in one round of measurements."""

    receiver: int  # the node that it sends to
    sender: int  # the node that sends to it
    sends_first: bool  # a sender and its receiver take turns, but where the ring closes


def rounds(nodes: int) -> list[range]:
    """The distances of each round."""
    found, first = [], 1
    while first < nodes:
        found.append(range(first, min(2 * first, nodes)))
        first *= 2
    return found


def peers(node: int, nodes: int) -> list[list[int]]:
    """Whom ``node`` connects to, by round."""
    return [[(node + distance) % nodes for distance in distances] for distances in rounds(nodes)]


def meetings(node: int, nodes: int) -> list[Meeting]:
    """The measurements of ``node``, by round."""
    return [
        Meeting((node + step) % nodes, (node - step) % nodes, sends_first=node // step % 2 == 0)
        for step in (distances[0] for distances in rounds(nodes))
    ]
