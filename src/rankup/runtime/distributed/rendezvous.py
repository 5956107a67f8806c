"""How ranks meet without a launcher's agent: at a store of rank 0, on a port that another job may use, too.

``MASTER_PORT`` gives the port, or all ranks derive the same few. Rank 0 listens on the first one that is free, and
writes a mark of this start there; the others try each port until they find the mark.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import threading
import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from rankup.errors import RankupError
from rankup.strategies.base import TORCH
from rankup.world import World
from rankup.world.address import Meeting, rendezvous, route_to

# Before torch 2.8 its newer store (clients see no difference) refuses a socket that listens already.
_NEWER_STORE = TORCH >= (2, 8)
_MARK = "rankup/start"
_CAME = "rankup/came"  # how many of the other ranks
_Store = Any  # torch gives the type of its stores no public name
_DIAL_S = 3.0


def meet(world: World, timeout: timedelta) -> _Store:
    """The store of this start. Raises ``port-in-use``, ``head-elsewhere``, and torch's ``RuntimeError``."""
    meeting = rendezvous(world, os.environ)
    if meeting.mark is None:
        listener = _listen(world, meeting.host, meeting.port, held=True) if world.rank == 0 else None
        return _store(world, meeting.host, meeting.port, timeout, listener, wait=True)
    return _host(world, meeting, timeout) if world.rank == 0 else _join(world, meeting, timeout)


def _host(world: World, meeting: Meeting, timeout: timedelta) -> _Store:
    for port in meeting.ports:
        try:
            listener = _listen(world, meeting.host, port, held=False)
        except RankupError as error:
            if error.code == "port-in-use" and port != meeting.ports[-1]:
                continue
            raise
        store = _store(world, meeting.host, port, timeout, listener)
        store.set(_MARK, str(meeting.mark))
        _wait_for_all(store, world, timeout)
        return store
    raise AssertionError("a meeting has at least one port")


def _wait_for_all(store: _Store, world: World, timeout: timedelta) -> None:
    deadline = time.monotonic() + timeout.total_seconds()
    while store.add(_CAME, 0) < world.world_size - 1:
        if time.monotonic() > deadline:
            missing = [rank for rank in range(1, world.world_size) if not store.check([_here(rank)])]
            few = ", ".join(map(str, missing[:8])) + (", …" if len(missing) > 8 else "")
            raise RuntimeError(f"within {timeout.total_seconds():g} s nothing was heard of rank {few}")
        time.sleep(0.05)


def _here(rank: int) -> str:
    return f"rankup/rank-{rank}"


def _join(world: World, meeting: Meeting, timeout: timedelta) -> _Store:
    deadline = time.monotonic() + timeout.total_seconds()
    dials: dict[int, _Dial] = {}
    while time.monotonic() < deadline:
        for port in meeting.ports:
            if port not in dials or not dials[port].is_alive():
                dials[port] = _Dial(world, meeting, port)
                dials[port].start()
            dials[port].join(_DIAL_S)
            store = dials[port].store
            if store is not None:
                store.set_timeout(timeout)
                store.set(_here(world.rank), "")
                store.add(_CAME, 1)
                return store
        time.sleep(0.2)
    raise RuntimeError(
        f"rank 0 did not answer within {timeout.total_seconds():g} s at {meeting.host}, "
        f"port {' or '.join(map(str, meeting.ports))}"
    )


class _Dial(threading.Thread):
    """Finds out which job has a port. A thread, since torch waits for ever for a program that does not answer."""

    def __init__(self, world: World, meeting: Meeting, port: int) -> None:
        super().__init__(daemon=True)
        self.store: _Store | None = None
        self._world, self._meeting, self._port = world, meeting, port

    def run(self) -> None:
        host = self._meeting.host
        try:
            with socket.create_connection((host, self._port), timeout=_DIAL_S):
                pass  # torch would retry for ever if no program listens
            store = _store(self._world, host, self._port, timedelta(seconds=_DIAL_S))
            if store.check([_MARK]) and store.get(_MARK).decode() == self._meeting.mark:
                self.store = store
        except (OSError, RuntimeError):
            pass  # nobody, or no store


def _store(
    world: World,
    host: str,
    port: int,
    timeout: timedelta,
    listener: int | None = None,
    *,
    wait: bool = False,
) -> _Store:
    """Without ``wait`` the store does not count this client: it may be another job's store."""
    return dist.TCPStore(  # type: ignore[attr-defined]
        host,
        port,
        world.world_size,
        is_master=listener is not None,
        timeout=timeout,
        wait_for_workers=wait,
        master_listen_fd=listener,
        use_libuv=_NEWER_STORE,
    )


def _listen(world: World, host: str, port: int, *, held: bool) -> int:
    """A listening socket on the one address that the peers use; by itself the store listens on every interface.

    On the head node its own name often resolves to 127.0.1.1: then it is the address from which packets to a peer are
    sent, and every interface if no peer is known. ``held``: the port is reserved by a socket that is bound to it.
    """
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    if world.num_nodes > 1 and ipaddress.ip_address(address[0]).is_loopback:
        peers = [peer for peer in world.hosts if peer not in (host, socket.gethostname())]
        here = route_to(peers[0]) if peers else "0.0.0.0"
        family, kind, _, _, address = socket.getaddrinfo(here, port, type=socket.SOCK_STREAM)[0]
    server = socket.socket(family, kind)
    if held:  # only then: else this could take a port that is reserved for another job
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind(address)
        server.listen(socket.SOMAXCONN)
    except OSError as error:
        server.close()
        if error.errno == errno.EADDRNOTAVAIL:
            raise RankupError(
                "head-elsewhere",
                f"rank 0 runs on {socket.gethostname()}, which does not have the address {address[0]}",
                context=f"MASTER_ADDR={host}",
                hint="MASTER_ADDR has to be an address of the machine that runs rank 0",
                exit_code=1,
            ) from error
        raise RankupError(
            "port-in-use",
            f"rank 0 cannot listen on {address[0]}:{port}: {error.strerror}",
            hint="another job may hold the port: export MASTER_PORT with a free one on all ranks",
            exit_code=1,
        ) from error
    return server.detach()
