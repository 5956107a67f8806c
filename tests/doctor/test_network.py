"""Agents answer nobody who does not have the token, and listen only where and while it is needed."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from pathlib import Path

import pytest

from rankup.doctor.plan import Plan
from rankup.doctor.probes import network


def both(plan: Plan) -> list[dict]:
    found: dict[int, dict] = {}

    def meet(node: int) -> None:
        found[node] = network.probe(plan, node)

    threads = [threading.Thread(target=meet, args=(node,)) for node in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[0], found[1]]


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def plan_of(tmp_path: Path, **more: object) -> Plan:
    return Plan(hosts=("localhost", "localhost"), folder=str(tmp_path), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_two_nodes_reach_each_other_and_measure_their_link(tmp_path: Path, host: str):
    if host == "::1" and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    found = both(Plan(hosts=(host, host), folder=str(tmp_path), window=30.0))
    for node, facts in enumerate(found):
        assert (facts["reached"], facts["failed"]) == (1, [])
        assert facts["sends"][str(1 - node)] > 0
        assert abs(facts["clock_offset"]) < 1


def test_nodes_send_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Else acknowledgements wait behind data, and the partner of a slow link looks as slow."""
    senders: list[str] = []
    real = network._send

    def send(address: str, port: int, opening: bytes) -> float:
        senders.append(opening.split()[1].decode())
        return real(address, port, opening)

    monkeypatch.setattr(network, "_send", send)
    monkeypatch.setattr(network, "_TURN", 30.0)
    both(plan_of(tmp_path, window=60.0))
    assert senders == ["0", "0", "1", "1"]


def test_nothing_listens_afterwards(tmp_path: Path):
    plan = plan_of(tmp_path, window=30.0)
    for node, facts in enumerate(both(plan)):
        assert facts["port"] in plan.ports(node)
        with (
            pytest.raises(ConnectionRefusedError),
            socket.create_connection(("127.0.0.1", facts["port"]), timeout=2),
        ):
            pass


@pytest.mark.parametrize("line", [b"\n", b"wrong 1 hello\n", b"x" * 100_000, b"GET / HTTP/1.1\r\n\r\n"])
def test_without_the_token_nothing_is_answered(tmp_path: Path, line: bytes):
    plan = plan_of(tmp_path)

    async def asked() -> tuple[bytes, bytes, set[int]]:
        node = network._Node(plan, 0)
        server = await asyncio.start_server(node._answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        answers = []
        for words in (line, f"{plan.token} 1 hello\n".encode()):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(words)
            try:
                answers.append(await reader.read())
            except ConnectionResetError:
                answers.append(b"")
            writer.close()
        server.close()
        return answers[0], answers[1], node.heard

    refused, answered, heard = asyncio.run(asked())
    assert refused == b""
    assert answered.startswith(b"0 ") and heard == {1}


def test_a_port_of_a_stranger_is_not_taken_for_the_peer(tmp_path: Path):
    """Somebody else holds the first port of node 1 and answers whatever comes."""
    plan = plan_of(tmp_path, window=30.0)
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", plan.ports(1)[0]))
        stranger.listen()
        found = both(plan)
    assert [facts["reached"] for facts in found] == [1, 1]
    assert found[1]["port"] != plan.ports(1)[0]


def test_a_node_alone_does_not_listen(tmp_path: Path):
    assert network.probe(Plan(hosts=("here",), folder=str(tmp_path)), 0) == {"alone": True}


@pytest.mark.parametrize(
    ("before", "kinds"),
    [([], ["unfinished"]), (["refused"], ["refused"])],
    ids=["nothing known", "refused before"],
)
def test_a_try_that_the_end_cuts_short_does_not_say_that_nobody_answers(
    tmp_path: Path, before: list[str], kinds: list[str]
):
    answers = [*before, *["timeout"] * 99]

    class Node(network._Node):
        async def _greet(self, peer: int, address: str, port: int, patience: float) -> dict:
            return {"kind": answers.pop(0), "address": address, "port": port}

    async def reach() -> list[str]:
        node = Node(plan_of(tmp_path), 0)
        await node._reach(1, time.monotonic() + 1, asyncio.Semaphore(1))
        return [how["kind"] for how in node.tried.values()]

    assert asyncio.run(reach()) == kinds
