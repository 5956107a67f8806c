"""The rounds in which all nodes meet.

One-to-one meetings of n nodes need n − 1 rounds. Here a node opens several connections in a round, twice as many in
each round as in the one before: in round k those to the nodes at distances 2ᵏ … 2ᵏ⁺¹ − 1 behind it, counted around a
ring. So ⌈log₂ n⌉ rounds hold every ordered pair of nodes exactly once, and in a round every node opens as many
connections as it gets. The first connection of each round makes a second schedule, of one partner per round
(``partners``): there every node sends to one other and receives from one other, for measurements.
"""

from __future__ import annotations


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


def partners(node: int, nodes: int) -> list[int]:
    """The one node to which ``node`` sends, by round."""
    return [(node + distances[0]) % nodes for distances in rounds(nodes)]
