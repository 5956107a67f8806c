"""TCP between every ordered pair of nodes, and how many bytes per second pass.

Each agent listens on the addresses from which packets to its peers leave, for as long as this examination takes, and
answers nobody who does not begin with the token. It connects to its peers in the rounds of ``schedule``. A port that
nobody opens yet is tried again until the window ends, because agents do not start at the same time; so is one that
does not answer, because a dropped packet is repeated after a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hmac
import socket
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankup.doctor.plan import Plan
from rankup.doctor.probes.names import addresses_of, is_loopback, routes_to
from rankup.doctor.schedule import meetings, peers

_AT_ONCE = 200  # connections that a node opens at the same time; a process may have about a thousand files
_PATIENCE = 2.0  # seconds for a line of a connection
_CONNECT = 3.5  # seconds for a connection: SYN is sent three times
_ROUND = 0.5  # seconds after which the next round begins, whatever is still tried
_BLOCK = bytes(256 * 1024)
_BURSTS = 2  # to each partner; the better one counts
_SENDING = 0.1  # seconds of a burst
_TURN = 2.0  # seconds that a node waits for the bursts that it gets
_BUFFER = 512 * 1024  # small: a slow link would be measured by what is left in the buffer
_ROUNDS_MEASURED = 4
_REFUSED = {errno.ECONNREFUSED: "refused", errno.ECONNRESET: "reset", errno.EHOSTUNREACH: "unreachable",
            errno.ENETUNREACH: "unreachable", errno.ETIMEDOUT: "timeout"}  # fmt: skip


def probe(plan: Plan, node: int) -> dict[str, Any]:
    if len(plan.hosts) < 2:
        return {"alone": True}
    return asyncio.run(_Node(plan, node).meet())


@dataclass
class _Node:
    plan: Plan
    node: int
    heard: set[int] = field(default_factory=set)  # nodes that have reached us
    tried: dict[int, dict[str, Any]] = field(default_factory=dict)  # peer → the last try that failed
    reached: dict[int, dict[str, Any]] = field(default_factory=dict)
    sends: dict[int, float] = field(default_factory=dict)  # peer → bytes per second
    bursts: Counter[int] = field(default_factory=Counter)  # node → how many it has sent here
    done: set[int] = field(default_factory=set)  # nodes that have measured, or will not

    async def meet(self) -> dict[str, Any]:
        began = time.monotonic()
        deadline = began + self.plan.window - 2.5
        others = [host for index, host in enumerate(self.plan.hosts) if index != self.node]
        loop = asyncio.get_running_loop()
        listeners, port, problem = [], 0, ""
        own = await loop.run_in_executor(None, _own_addresses, self.plan, self.node)
        for port in self.plan.ports(self.node):
            try:
                for address in own:
                    server = await asyncio.start_server(self._answer, address, port, reuse_address=True)
                    listeners.append(server)
                break
            except OSError as error:
                problem = error.strerror or str(error)
                await _close(listeners)
        listening = bool(listeners)
        gate = asyncio.Semaphore(_AT_ONCE)
        tasks = []
        for distance in peers(self.node, len(self.plan.hosts)):
            tasks += [asyncio.create_task(self._reach(peer, deadline, gate)) for peer in distance]
            await asyncio.wait(tasks, timeout=_ROUND)
        await asyncio.gather(*tasks)
        await self._measure(deadline)
        while len(self.done) < len(others) and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        await _close(listeners)
        offsets = [one["offset"] for one in self.reached.values()]
        return {
            "addresses": own,
            "port": port if own else 0,
            "listening": listening,
            "problem": "" if listening else problem,
            "reached": len(self.reached),
            "failed": [{"peer": peer, **how} for peer, how in sorted(self.tried.items()) if peer not in self.reached],
            "unheard": sorted(set(range(len(self.plan.hosts))) - self.heard - {self.node})[:64],
            "round_trip": round(statistics.median([one["rtt"] for one in self.reached.values()]), 6)
            if self.reached else None,
            # How far ahead the others' clocks are.
            "clock_offset": round(statistics.median(offsets), 3) if offsets else None,
            "sends": {str(peer): round(rate) for peer, rate in self.sends.items()},
            "seconds": round(time.monotonic() - began, 3),
        }  # fmt: skip

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.TimeoutError, ValueError, asyncio.IncompleteReadError):
            line = await asyncio.wait_for(reader.readuntil(b"\n"), _PATIENCE)
            token, _, rest = line.decode("ascii", "replace").strip().partition(" ")
            if hmac.compare_digest(token.encode(), self.plan.token.encode()):
                sender, kind = rest.split()
                writer.write(f"{self.node} {time.time()}\n".encode())
                await writer.drain()
                if kind == "send":
                    try:
                        writer.write(
                            f"{await _drained(reader)}\n".encode()
                        )  # bytes, and seconds without a core
                        await writer.drain()
                    finally:
                        self.bursts[int(sender)] += 1
                elif kind == "done":
                    self.done.add(int(sender))
                self.heard.add(int(sender))
        writer.close()

    async def _reach(self, peer: int, deadline: float, gate: asyncio.Semaphore) -> None:
        """Try the peer's addresses and ports until one of them answers as it must, or the time is over."""
        loop = asyncio.get_running_loop()
        async with gate:
            addresses = await loop.run_in_executor(None, addresses_of, self.plan.hosts[peer])
        if not addresses:
            self.tried[peer] = {"kind": "unknown-name", "address": ""}
            return
        while time.monotonic() < deadline:
            for address in addresses:
                for port in self.plan.ports(peer):
                    left = deadline - time.monotonic()
                    if left <= 0:
                        break
                    async with gate:
                        how = await self._greet(peer, address, port, min(left, _CONNECT))
                    if how is None:
                        return
                    # What says most: that nobody listens on the second port follows from the first.
                    before = self.tried.get(peer)
                    if how["kind"] == "timeout" and left < _CONNECT:
                        # The window's end cut it short: it does not say that nobody answers.
                        how = before or {**how, "kind": "unfinished"}
                    if before is None or before["kind"] in ("refused", "unfinished", how["kind"]):
                        self.tried[peer] = how
                    if how["kind"] != "refused" and how["kind"] != "stranger":
                        break
            await asyncio.sleep(0.1)

    async def _greet(self, peer: int, address: str, port: int, patience: float) -> dict[str, Any] | None:
        """None if the peer has answered; else how it failed."""
        try:
            said, sent = await self._ask(address, port, "hello", patience)
            answered, clock = said.split()
            if int(answered) != peer:
                raise ValueError(answered)
        except (asyncio.TimeoutError, TimeoutError):
            return {"kind": "timeout", "address": address, "port": port}
        except OSError as error:
            kind = _REFUSED.get(error.errno or 0, "failed")
            return {"kind": kind, "address": address, "port": port, "error": error.strerror or str(error)}
        except (ValueError, asyncio.IncompleteReadError):
            return {"kind": "stranger", "address": address, "port": port}
        now = time.time()
        self.reached[peer] = {
            "rtt": now - sent,
            "offset": float(clock) - (sent + now) / 2,
            "at": (address, port),
        }
        return None

    async def _ask(self, address: str, port: int, kind: str, patience: float) -> tuple[str, float]:
        """The line that answers, and when it was asked. ValueError if the listener does not answer."""
        reader, writer = await asyncio.wait_for(asyncio.open_connection(address, port), patience)
        try:
            sent = time.time()
            writer.write(f"{self.plan.token} {self.node} {kind}\n".encode())
            await writer.drain()
            try:
                line = await asyncio.wait_for(reader.readuntil(b"\n"), _PATIENCE)
            except (asyncio.TimeoutError, asyncio.LimitOverrunError):
                raise ValueError("no answer") from None
            return line.decode("ascii", "replace"), sent
        finally:
            writer.close()

    async def _measure(self, deadline: float) -> None:
        """Send to one partner after another; then tell all that they need not wait for us.

        A node does not send while it is sent to: its acknowledgements would wait behind its own data, and the partner
        of a slow link would look as slow.
        """
        loop = asyncio.get_running_loop()
        for meeting in meetings(self.node, len(self.plan.hosts))[:_ROUNDS_MEASURED]:
            if not meeting.sends_first:
                await self._sent_to(meeting.sender, deadline)
            for _ in range(_BURSTS if meeting.receiver in self.reached else 0):
                if deadline - time.monotonic() < 1:
                    break
                address, port = self.reached[meeting.receiver]["at"]
                opening = f"{self.plan.token} {self.node} send\n".encode()
                rate = await loop.run_in_executor(None, _send, address, port, opening)
                self.sends[meeting.receiver] = max(rate, self.sends.get(meeting.receiver, 0.0))
            await self._sent_to(meeting.sender, deadline)
        told = [self._ask(one["at"][0], one["at"][1], "done", _PATIENCE) for one in self.reached.values()]
        for i in range(0, len(told), _AT_ONCE):
            await asyncio.wait(
                [asyncio.create_task(_quietly(one)) for one in told[i : i + _AT_ONCE]], timeout=_PATIENCE
            )

    async def _sent_to(self, sender: int, deadline: float) -> None:
        """Wait until all bursts of a node have come, but not long, and for no node without a connection."""
        until = min(time.monotonic() + _TURN, deadline - 1)
        while (
            (sender in self.heard or sender in self.reached)
            and sender not in self.done
            and self.bursts[sender] < _BURSTS
            and time.monotonic() < until
        ):
            await asyncio.sleep(0.005)


async def _quietly(asked: Any) -> None:
    with contextlib.suppress(OSError, ValueError, asyncio.TimeoutError, asyncio.IncompleteReadError):
        await asked


async def _drained(reader: asyncio.StreamReader) -> str:
    total, waited = 0, _seconds_without_core()
    while data := await asyncio.wait_for(reader.read(1024**2), 5):
        total += len(data)
    return f"{total} {_seconds_without_core() - waited:.6f}"


def _seconds_without_core() -> float:
    """How long this thread was ready to run and others used the cores; 0 where the kernel does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    return 0.0


async def _close(servers: list[Any]) -> None:
    for server in servers:
        server.close()
    servers.clear()


def _send(address: str, port: int, opening: bytes) -> float:
    """Bytes per second, until the other side has all of them; 0 if they do not arrive.

    The time in which one of the two sides had no core does not count: it says nothing about the link.
    """
    try:
        with socket.create_connection((address, port), timeout=_PATIENCE) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
            connection.sendall(opening)
            answers = connection.makefile("rb")
            answers.readline()
            began, waited, total = time.monotonic(), _seconds_without_core(), 0
            while time.monotonic() - began < _SENDING:
                connection.sendall(_BLOCK)
                total += len(_BLOCK)
            connection.shutdown(socket.SHUT_WR)
            arrived, theirs = answers.readline().split()
            elapsed = time.monotonic() - began
            without_core = float(theirs) + _seconds_without_core() - waited
            # Both sides may be without a core at the same time.
            return total / max(elapsed - without_core, elapsed / 10) if int(arrived) == total else 0.0
    except (OSError, ValueError):
        return 0.0


def _own_addresses(plan: Plan, node: int) -> list[str]:
    """Those from which packets to the peers leave; without any, as where the peers' names are wrong, that of our name.

    Loopback only if all hosts are this machine.
    """
    routes = routes_to([host for index, host in enumerate(plan.hosts) if index != node])
    own = [address for address in routes if not is_loopback(address)]
    own = own or [address for address in addresses_of(plan.hosts[node]) if not is_loopback(address)]
    every = [address for host in set(plan.hosts) for address in addresses_of(host)]
    return own or (routes[:1] if all(map(is_loopback, every)) else [])
