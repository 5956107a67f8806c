"""Addresses: the one that routes to a peer, its network interface, and where the ranks of a world meet."""

from __future__ import annotations

import hashlib
import os
import socket
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from rankup.errors import RankupError
from rankup.world.world import World, whole_number

_SIOCGIFADDR = 0x8915
# The same on all ranks of one mpirun, and different for any other: Open MPI's PMIx, older Open MPI, PALS.
_MPI_JOB = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PALS_APID")
_CANDIDATES = 4  # ports: another job on rank 0's host may derive the same one


def route_to(host: str) -> str:
    """The address of this machine from which packets to ``host`` leave. Sends nothing. Raises ``unknown-host``.

    A machine has many addresses, and its own name may resolve to 127.0.1.1. A peer can reach the returned one.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)  # on a datagram socket this only asks the routing table
            return str(probe.getsockname()[0])
    except (OSError, UnicodeError) as error:
        raise RankupError(
            "unknown-host",
            f"no route to {host!r}: {error}",
            context=f"on {socket.gethostname()}",
            hint="check the name (getent hosts NAME), or export MASTER_ADDR as a numeric address",
            exit_code=1,
        ) from None


def interface_of(address: str) -> str | None:
    """The interface whose first IPv4 address is ``address``; None without one, and on other systems than Linux."""
    if sys.platform != "linux":
        return None
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", os.fsencode(name)[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError:
                continue  # it has no IPv4 address
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return None


@dataclass(frozen=True)
class Meeting:
    """Host and ports where rank 0 listens and the others connect. Every rank derives the same, without a message.

    With a ``mark``, which is unique to this start, the port is the first of ``ports`` that rank 0 finds free.
    """

    host: str
    ports: tuple[int, ...]
    mark: str | None = None

    @property
    def port(self) -> int:
        return self.ports[0]


def rendezvous(world: World, env: Mapping[str, str] = os.environ) -> Meeting:
    """The host is MASTER_ADDR, else the first of ``world.hosts``, else 127.0.0.1 on one node.

    The port is MASTER_PORT, else one of a few that are derived from values that all ranks of this start share. Raises
    ``no-rendezvous`` if they share none, and tells what to export.
    """
    host = _host(world, env)
    if env.get("MASTER_PORT", "").strip():
        return Meeting(host, (_given_port(env),))
    mark = "/".join(_shared(world, env))
    return Meeting(host, tuple(_derived_port(mark, i) for i in range(_CANDIDATES)), mark)


def _host(world: World, env: Mapping[str, str]) -> str:
    if env.get("MASTER_ADDR", "").strip():
        return env["MASTER_ADDR"].strip()
    if world.hosts:
        return world.hosts[0]
    if world.world_size == world.local_world_size:
        return "127.0.0.1"
    raise _nowhere(world, "MASTER_ADDR", "no variable names the first host")


def _given_port(env: Mapping[str, str]) -> int:
    port = whole_number(env, "MASTER_PORT")
    if not 0 < port < 65536:
        from rankup.world.ports import FIRST_PORT, LAST_PORT

        raise RankupError(
            "bad-port",
            f"MASTER_PORT is {port}, but must be from 1 to 65535",
            hint=f"unset MASTER_PORT, or export one from {FIRST_PORT} to {LAST_PORT}",
        )
    return port


def _derived_port(mark: str, index: int) -> int:
    from rankup.world.ports import FIRST_PORT, LAST_PORT

    digest = hashlib.sha256(f"{mark}/{index}".encode("utf-8", "surrogateescape")).digest()
    return FIRST_PORT + int.from_bytes(digest[:8], "big") % (LAST_PORT - FIRST_PORT + 1)


def _shared(world: World, env: Mapping[str, str]) -> list[str]:
    """Values that identify this start of this job, and are the same on all its ranks."""
    if world.launcher == "srun":
        return [world.job_id or "", env.get("SLURM_STEP_ID", ""), str(world.restart)]
    # The MPI's own id comes before the scheduler's: ranks that were started by ssh have no variables of the scheduler.
    mark = next((env[name] for name in _MPI_JOB if env.get(name)), None)
    if mark is not None:
        return [mark]
    if world.job_id is not None:
        return [world.job_id, str(world.restart)]
    if world.world_size == world.local_world_size:
        return [str(os.getppid())]  # the launcher's process on this node
    raise _nowhere(world, "MASTER_PORT", "the ranks share neither a job id nor an MPI namespace")


def _nowhere(world: World, name: str, why: str) -> RankupError:
    return RankupError(
        "no-rendezvous",
        f"the {world.world_size} ranks have no host and port to meet at: {name} is not set, and {why}",
        context=f"launcher {world.launcher}, rank {world.rank}, {world.num_nodes} nodes",
        hint="export MASTER_ADDR=FIRST_HOST MASTER_PORT=29400 for all ranks"
        " (Open MPI: mpirun -x MASTER_ADDR -x MASTER_PORT)",
    )
