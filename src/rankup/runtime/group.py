"""Process groups: how ranks find each other, and how they part.

Two groups. The default one carries gradients (nccl for CUDA tensors, gloo for CPU tensors). The *control* group is
gloo with a timeout of a day: what waits for people and downloads waits there, and never holds up a GPU stream.
With a world size of 1 there is neither.
"""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from rankup.errors import RankupError
from rankup.runtime.parting import part_well
from rankup.world import World
from rankup.world.address import interface_of, rendezvous, route_to

CONTROL_TIMEOUT = timedelta(days=1)


@dataclass(frozen=True)
class Groups:
    """``control`` is None with a world size of 1."""

    control: dist.ProcessGroup | None


def start_groups(world: World, device: torch.device, timeout: timedelta) -> Groups:
    """Form the default and the control group; taken over as it is where the script has formed the default one."""
    if world.world_size == 1:
        return Groups(None)
    owned = not dist.is_initialized()
    if owned:
        _choose_interface(world)
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        try:
            _init_default(world, backend, timeout)
        except (dist.DistError, OSError, ValueError) as error:
            raise RankupError(
                "rendezvous-failed",
                f"rank {world.rank} of {world.world_size} could not meet the others: {error}",
                context=f"launcher {world.launcher}, MASTER_ADDR={os.environ.get('MASTER_ADDR', '(unset)')}",
                hint="`rankup world` under the same launcher shows what each process believes",
                exit_code=1,
            ) from error
    elif dist.get_world_size() != world.world_size or dist.get_rank() != world.rank:
        raise RankupError(
            "foreign-group",
            f"a process group with rank {dist.get_rank()} of {dist.get_world_size()} exists already, but the "
            f"environment says {world.rank} of {world.world_size}",
            hint="call rankup.init() instead of init_process_group",
        )
    control = dist.new_group(backend="gloo", timeout=CONTROL_TIMEOUT)
    if device.type == "cuda":
        _refuse_shared_gpu(world, device, control)
    part_well(owned)
    return Groups(control)


def _init_default(world: World, backend: str, timeout: timedelta) -> None:
    if world.launcher == "torchrun":  # its agent's store is there already
        dist.init_process_group(backend, init_method="env://", timeout=timeout)
        return
    host, port = rendezvous(world, os.environ)
    store = dist.TCPStore(  # type: ignore[attr-defined]
        host,
        port,
        world.world_size,
        is_master=world.rank == 0,
        timeout=timeout,
        master_listen_fd=_listen(world, host, port) if world.rank == 0 else None,
    )
    dist.init_process_group(
        backend, store=store, rank=world.rank, world_size=world.world_size, timeout=timeout
    )


def _listen(world: World, host: str, port: int) -> int:
    """A listening socket on the one address that the peers reach; left to itself the store takes every interface.

    On the head its own name often resolves to 127.0.1.1, so where peers are known the address is the one from which
    packets to them leave; where they are not, and the name leads nowhere else, it has to be every interface.
    """
    peers = [peer for peer in world.hosts if peer not in (host, socket.gethostname())]
    if world.num_nodes > 1 and peers:
        host = route_to(peers[0])
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    if world.num_nodes > 1 and str(address[0]).startswith("127."):
        address = ("0.0.0.0", port)
    server = socket.socket(family, kind)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind(address)
    except OSError as error:
        server.close()
        raise RankupError(
            "port-in-use",
            f"rank 0 cannot listen on {address[0]}:{port}: {error.strerror}",
            hint="another job may hold the port: export MASTER_PORT with a free one on all ranks",
            exit_code=1,
        ) from error
    server.listen(socket.SOMAXCONN)
    return server.detach()


def _choose_interface(world: World) -> None:
    """Tell gloo one concrete interface: by itself it resolves the host's name, which fails or loops back on many."""
    if "GLOO_SOCKET_IFNAME" in os.environ:
        return
    if world.num_nodes == 1:
        name: str | None = "lo0" if sys.platform == "darwin" else "lo"
    else:
        head = os.environ.get("MASTER_ADDR") or rendezvous(world, os.environ)[0]
        others = [host for host in world.hosts if host not in (head, socket.gethostname())]
        peer = others[0] if world.node_rank == 0 and others else head
        try:
            name = interface_of(route_to(peer))
        except OSError:
            return  # gloo's own choice, and its own error
    if name and (world.num_nodes == 1 or not name.startswith("lo")):
        os.environ["GLOO_SOCKET_IFNAME"] = name


def _refuse_shared_gpu(world: World, device: torch.device, control: dist.ProcessGroup) -> None:
    """NCCL fails late and darkly where two ranks hold one GPU."""
    mine = (socket.gethostname(), str(torch.cuda.get_device_properties(device).uuid))
    everyone: list[Any] = [None] * world.world_size
    dist.all_gather_object(everyone, mine, group=control)
    twins = [rank for rank, other in enumerate(everyone) if other == mine]
    if len(twins) > 1:
        raise RankupError(
            "gpu-shared",
            f"ranks {twins} share one GPU, {device} on {mine[0]}",
            hint="start as many processes per node as it has GPUs, or use device='cpu'",
            exit_code=1,
        )
