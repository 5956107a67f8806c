"""Nodes that were started one by one find each other and compare their settings, before torchrun takes the port.

torchrun waits ten minutes for a node that does not come, and a wrong ``--nnodes`` or two equal node ranks end in the
same silence. Here node 0 listens on the endpoint, hears from every other node, and answers all of them: with what they
share, or with everything that is wrong (``disagreement``). It listens on the endpoint's own address and on no other.
A message is one line of JSON, and so is its answer.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from rankup.core.endpoint import Endpoint
from rankup.errors import RankupError
from rankup.findings.engine import collect
from rankup.findings.error import FindingsError
from rankup.findings.finding import Finding
from rankup.run.disagreement import (
    NODE_DIFFERENCES,
    NODE_PROBLEMS,
    Meeting,
    NodeInfo,
    cannot_bind,
    node_lost,
    nodes_missing,
)

PROTOCOL = 1
_LONGEST = 65536  # bytes of a line: enough for the process counts of some ten thousand nodes
_PATIENCE = 5.0  # seconds for the line of one connection
_LINGER = 3.0  # seconds in which node 0 tells late nodes that something is wrong
_REMIND = 10.0  # seconds between two notes that this node waits


@dataclass(frozen=True)
class Agreement:
    """What all nodes know afterwards: the run's id, how many processes each node has, by node rank, and warnings."""

    run_id: str
    nproc: tuple[int, ...]
    findings: tuple[Finding, ...] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "findings": [finding.as_dict() for finding in self.findings]}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Agreement:
        found = map(Finding.from_dict, values["findings"])
        return cls(values["run_id"], tuple(values["nproc"]), tuple(found))


@dataclass(frozen=True)
class Handshake:
    """One node's part. ``note`` shows a line; ``check`` is called while waiting and may raise."""

    me: NodeInfo
    endpoint: Endpoint
    timeout: float
    note: Callable[[str], None]
    check: Callable[[], None]

    def host(self, run_id: str) -> Agreement:
        """Node 0's side."""
        me, deadline = self.me, time.monotonic() + self.timeout
        joined: dict[int, NodeInfo] = {0: me}
        lines: dict[int, socket.socket] = {}  # node rank → the connection that it waits at
        with ExitStack() as stack:
            listener = stack.enter_context(self._listen())
            waiting = _Reminder(self.note)
            while len(joined) < me.nnodes:
                self.check()
                for rank in [rank for rank, line in lines.items() if _hung_up(line)]:
                    del joined[rank], lines[rank]  # it was stopped, and may come again
                missing = [rank for rank in range(me.nnodes) if rank not in joined]
                if time.monotonic() > deadline:
                    raise _told(
                        lines.values(), nodes_missing(missing, me.nnodes, self.timeout, str(self.endpoint))
                    )
                waiting.remind(
                    f"waiting for node {', '.join(map(str, missing))} of {me.nnodes} at {self.endpoint}"
                )
                try:
                    connection, _ = listener.accept()
                except TimeoutError:
                    continue
                stack.enter_context(connection)
                hello = _hello(receive(connection, time.monotonic() + _PATIENCE, self.check))
                if hello is None:
                    connection.close()  # a port scanner, or a node that gave up
                    continue
                if problems := collect(NODE_PROBLEMS, Meeting(hello, joined)):
                    problem = FindingsError(problems)
                    told = [*lines.values(), connection]
                    _tell_latecomers(listener, me.nnodes - 1 - len(told), problem)
                    raise _told(told, problem)
                joined[hello.node_rank], lines[hello.node_rank] = hello, connection
            nproc = tuple(joined[rank].nproc for rank in range(me.nnodes))
            agreement = Agreement(run_id, nproc, tuple(collect(NODE_DIFFERENCES, joined)))
            for rank, line in lines.items():
                try:
                    send(line, {"agreement": agreement.as_dict()})
                except OSError as error:
                    raise _told(lines.values(), node_lost(joined[rank], error)) from error
            _wait_until_closed(lines.values(), self.check)
        return agreement

    def join(self) -> Agreement:
        """Every other node's side."""
        deadline = time.monotonic() + self.timeout
        waiting = _Reminder(self.note)
        while time.monotonic() < deadline:
            self.check()
            # Once it has heard of us, node 0 is the one who says when to give up.
            answer = self._ask(time.monotonic() + self.timeout + _PATIENCE)
            if answer is not None:
                return _understood(answer)
            waiting.remind(f"waiting for node 0 at {self.endpoint}")
            time.sleep(0.2)
        raise RankupError(
            "nodes-missing",
            f"node 0 did not answer at {self.endpoint} within {self.timeout:g} s",
            context=f"this is node {self.me.node_rank} of {self.me.nnodes}, on {self.me.host}",
            hint="start --node-rank 0 on that machine, and check that no firewall closes the port",
            exit_code=1,
        )

    def _listen(self) -> socket.socket:
        family, kind, _, _, address = _addresses(self.endpoint)[0]
        listener = socket.socket(family, kind)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(128)
            listener.settimeout(0.2)
        except OSError as error:
            listener.close()
            # If another node 0 has the endpoint, both sides should hear of it.
            answer = self._ask(time.monotonic() + _PATIENCE)
            if answer is not None:
                _understood(answer)
            raise cannot_bind(self.endpoint, error, self.me.host) from error
        return listener

    def _ask(self, deadline: float) -> dict[str, Any] | None:
        _addresses(self.endpoint)  # a name that does not exist is an error now, not a reason to wait
        try:
            with socket.create_connection(self.endpoint, timeout=_PATIENCE) as connection:
                send(connection, {"hello": asdict(self.me)})
                return receive(connection, deadline, self.check)
        except OSError:
            return None


def _hello(message: dict[str, Any] | None) -> NodeInfo | None:
    try:
        return NodeInfo(**message["hello"]) if message is not None else None
    except (KeyError, TypeError):
        return None


def _told(others: Iterable[socket.socket], error: RankupError) -> RankupError:
    """``error``, after every connected node has been sent it."""
    for connection in others:
        with suppress(OSError):
            send(connection, {"error": error.as_dict()})
    _wait_until_closed(others, lambda: None)
    return error


def _tell_latecomers(listener: socket.socket, count: int, error: RankupError) -> None:
    """Nodes that were started at the same time, but ask only now: else they would wait for us until they give up."""
    deadline = time.monotonic() + _LINGER
    while count > 0 and time.monotonic() < deadline:
        with suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                if _hello(receive(connection, deadline, lambda: None)) is not None:
                    send(connection, {"error": error.as_dict()})
                    _wait_until_closed([connection], lambda: None)
                    count -= 1


def _wait_until_closed(others: Iterable[socket.socket], check: Callable[[], None]) -> None:
    """The side that closes first keeps the port busy for a minute: let that be the others."""
    for connection in others:
        receive(connection, time.monotonic() + _PATIENCE, check)


def _hung_up(line: socket.socket) -> bool:
    """Whether the other side has closed; it says nothing while it waits."""
    try:
        return line.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except (BlockingIOError, TimeoutError):
        return False
    except OSError:
        return True


def _understood(answer: dict[str, Any]) -> Agreement:
    if "error" in answer:
        raise FindingsError.from_dict(answer["error"])
    return Agreement.from_dict(answer["agreement"])


def _addresses(endpoint: Endpoint) -> list[Any]:
    try:
        return socket.getaddrinfo(*endpoint, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise RankupError(
            "unknown-host",
            f"there is no host {endpoint.host!r}: {error.strerror}",
            context="--rdzv-endpoint",
            hint="give the machine's address instead of its name",
        ) from error


def send(connection: socket.socket, message: Mapping[str, Any]) -> None:
    connection.sendall(json.dumps({"rankup": PROTOCOL, **message}).encode() + b"\n")


def receive(connection: socket.socket, deadline: float, check: Callable[[], None]) -> dict[str, Any] | None:
    """The other side's message; None if it is not one of ours, too long, cut off, or has not come by ``deadline``.

    ``deadline`` as of ``time.monotonic``; ``check`` is called while waiting and may raise.
    """
    data = b""
    connection.settimeout(0.2)
    while not data.endswith(b"\n"):
        check()
        if time.monotonic() > deadline or len(data) > _LONGEST:
            return None
        try:
            more = connection.recv(4096)
        except TimeoutError:
            continue
        except OSError:
            return None
        if not more:
            return None
        data += more
    try:
        message = json.loads(data)
    except ValueError:
        return None
    return message if isinstance(message, dict) and message.get("rankup") == PROTOCOL else None


class _Reminder:
    """Says that this node waits: at once, and then every ten seconds."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note, self._next = note, time.monotonic()

    def remind(self, text: str) -> None:
        if time.monotonic() >= self._next:
            self._note(text)
            self._next = time.monotonic() + _REMIND
