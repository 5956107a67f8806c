"""Nodes that find each other, on real sockets of this machine."""

from __future__ import annotations

import socket
import threading

import pytest

import ranks
from rankup.core.endpoint import Endpoint
from rankup.errors import RankupError
from rankup.findings.finding import Severity
from rankup.run import handshake
from rankup.run.disagreement import NodeInfo
from rankup.run.handshake import Agreement, Handshake
from rankup.run.interrupts import Interrupted


def hello(node_rank, nnodes=2, **fields):
    return NodeInfo(
        node_rank, nnodes, **{"nproc": 1, "host": f"machine{node_rank}", "torch": "2.6.0", **fields}
    )


@pytest.fixture
def endpoint():
    return Endpoint("127.0.0.1", ranks.free_port())


def meet(endpoint, *nodes, timeout=240):
    """What each node ends with, an agreement or an error, and the notes that all of them were shown."""
    results, notes = {}, []

    def node(place, me):
        own = Handshake(me, endpoint, timeout, notes.append, lambda: None)
        try:
            results[place] = own.host("run-1") if me.node_rank == 0 else own.join()
        except RankupError as error:
            results[place] = error

    threads = [threading.Thread(target=node, args=item) for item in enumerate(nodes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[place] for place in range(len(nodes))], notes


def test_all_nodes_learn_the_run_and_every_node_s_process_count(endpoint):
    results, _ = meet(endpoint, hello(2, 3, nproc=1), hello(0, 3, nproc=4), hello(1, 3, nproc=2))
    assert results == [Agreement("run-1", (4, 2, 1))] * 3


def test_the_port_is_free_again_at_once(endpoint):
    meet(endpoint, hello(0), hello(1))
    with socket.socket() as again:  # without SO_REUSEADDR
        again.bind(endpoint)
        assert again.getsockname() == endpoint


def test_a_node_that_waits_says_so(endpoint):
    _, notes = meet(endpoint, hello(1), timeout=0.5)
    assert notes == [f"waiting for node 0 at 127.0.0.1:{endpoint[1]}"]


@pytest.mark.parametrize("rank", [0, 1])
def test_equal_node_ranks_are_an_error_on_every_side(endpoint, rank):
    nodes = [hello(0, 3), hello(1, 3), hello(rank, 3, host="twin")]
    results, _ = meet(endpoint, *nodes)
    assert {error.code for error in results} == {"equal-node-ranks"}
    assert all("twin" in error.message and f"--node-rank {rank}" in error.message for error in results)


def test_different_numbers_of_nodes_are_an_error_on_both_sides(endpoint):
    results, _ = meet(endpoint, hello(0, 2), hello(1, 3))
    assert [error.code for error in results] == ["nodes-disagree"] * 2
    assert "2 on machine0 (node 0), 3 on machine1 (node 1)" in results[0].message


def test_nodes_that_do_not_come_are_named_to_those_that_did(endpoint):
    results, _ = meet(endpoint, hello(0, 3), hello(2, 3), timeout=1.0)
    assert [error.code for error in results] == ["nodes-missing"] * 2
    assert all("of 3 nodes, node 1 did not join within 1 s" in error.message for error in results)
    assert results[0].exit_code == 1


def test_all_that_is_wrong_with_a_node_is_said_on_both_sides(endpoint):
    results, _ = meet(endpoint, hello(0, 2), hello(0, 3, host="twin"))
    for error in results:
        assert [finding.code for finding in error.findings] == ["nodes-disagree", "equal-node-ranks"]


def test_another_minor_version_of_torch_is_a_warning_for_all(endpoint):
    results, _ = meet(endpoint, hello(0), hello(1, torch="2.7.1"))
    for agreement in results:
        [finding] = agreement.findings
        assert (finding.code, finding.severity) == ("torch-differs", Severity.WARNING)
        assert finding.message.endswith("versions of torch: 2.6 on node 0, 2.7 on node 1")


def test_a_patch_version_is_none(endpoint):
    results, _ = meet(endpoint, hello(0), hello(1, torch="2.6.1"))
    assert results[0].findings == ()


@pytest.mark.parametrize(
    "noise", [b"GET / HTTP/1.1\r\n\r\n", b"", b'{"rankup": 1, "hello": {"x": 1}}\n', b"x" * 70000]
)
def test_strangers_at_the_port_are_passed_over(endpoint, noise):
    def stranger_then_node_1():
        with socket.create_connection(endpoint) as connection:
            connection.sendall(noise)
        Handshake(hello(1), endpoint, 10, print, lambda: None).join()

    others = threading.Thread(target=stranger_then_node_1)
    agreement = Handshake(hello(0), endpoint, 20, lambda text: others.start(), lambda: None).host("run-1")
    others.join()
    assert agreement.nproc == (1, 1)


def test_a_node_that_was_stopped_may_come_again(endpoint):
    def stopped_then_started():
        with socket.create_connection(endpoint) as connection:
            handshake.send(connection, {"hello": vars(hello(1, 3))})
        again.start()
        Handshake(hello(2, 3), endpoint, 10, print, lambda: None).join()

    again = threading.Thread(
        target=lambda: Handshake(hello(1, 3, nproc=5), endpoint, 10, print, lambda: None).join()
    )
    others = threading.Thread(target=stopped_then_started)
    begin = iter([others.start])
    agreement = Handshake(hello(0, 3), endpoint, 20, lambda text: next(begin, int)(), lambda: None).host(
        "run-1"
    )
    others.join()
    again.join()
    assert agreement.nproc == (1, 5, 1)


def test_node_0_on_the_wrong_machine_is_told_so():
    with pytest.raises(RankupError, match=r"has no address '192\.0\.2\.1'") as caught:
        Handshake(hello(0), Endpoint("192.0.2.1", 29400), 1, print, lambda: None).host("run-1")
    assert caught.value.code == "endpoint-not-here"


def test_a_port_that_something_else_has_is_an_error(endpoint, monkeypatch):
    monkeypatch.setattr(handshake, "_PATIENCE", 0.3)
    with (
        socket.create_server(endpoint),
        pytest.raises(RankupError, match=f"port {endpoint[1]} is in use") as caught,
    ):
        Handshake(hello(0), endpoint, 1, print, lambda: None).host("run-1")
    assert caught.value.code == "endpoint-in-use"


def test_a_host_that_does_not_exist_is_no_reason_to_wait():
    with pytest.raises(RankupError) as caught:
        Handshake(hello(1), Endpoint("no.such.host.invalid", 1), 60, print, lambda: None).join()
    assert caught.value.code == "unknown-host"


def test_only_the_endpoint_s_own_address_is_listened_on(endpoint):
    outside = []

    def check():
        with socket.socket() as other:
            other.settimeout(1)
            outside.append(other.connect_ex(("127.0.0.2", endpoint[1])))
        raise Interrupted(2)

    with pytest.raises(Interrupted):
        Handshake(hello(0), endpoint, 5, print, check).host("run-1")
    assert outside and outside[0] != 0
