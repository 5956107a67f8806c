"""All ordered pairs of nodes meet, once, in ⌈log₂ n⌉ rounds."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from rankup.doctor.schedule import meetings, peers, rounds


@given(st.integers(1, 100))
def test_every_ordered_pair_meets_once(nodes: int):
    pairs = [(node, peer) for node in range(nodes) for meets in peers(node, nodes) for peer in meets]
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == {(a, b) for a in range(nodes) for b in range(nodes) if a != b}


@given(st.integers(1, 100_000))
def test_the_rounds_are_log2(nodes: int):
    assert len(rounds(nodes)) == math.ceil(math.log2(nodes))
    # All distances around the ring: so every node meets every other one, whatever its number.
    assert [distance for distances in rounds(nodes) for distance in distances] == list(range(1, nodes))


@given(st.integers(2, 80))
def test_in_each_round_a_node_opens_as_many_connections_as_it_gets(nodes: int):
    for number in range(len(rounds(nodes))):
        opened = [peers(node, nodes)[number] for node in range(nodes)]
        got = [sum(meets.count(node) for meets in opened) for node in range(nodes)]
        assert got == [len(meets) for meets in opened]


@given(st.integers(2, 80))
def test_measurements_disturb_each_other_least(nodes: int):
    """In each round every node sends to one other, and receives from one other."""
    for number in range(len(rounds(nodes))):
        assert sorted(meetings(node, nodes)[number].receiver for node in range(nodes)) == list(range(nodes))


@given(st.integers(2, 80))
def test_a_node_does_not_send_while_it_is_sent_to(nodes: int):
    """But for the pairs at which the ring closes, of which a round has as many as its distance."""
    every = [meetings(node, nodes) for node in range(nodes)]
    for number, distances in enumerate(rounds(nodes)):
        turns = [meets[number] for meets in every]
        assert all(turns[meeting.receiver].sender == node for node, meeting in enumerate(turns))
        at_once = [
            node
            for node, meeting in enumerate(turns)
            if meeting.sends_first == turns[meeting.receiver].sends_first
        ]
        assert len(at_once) <= distances[0]
