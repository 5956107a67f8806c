"""The process group: how it is formed, and enough file descriptors for it.

A run has one group of all ranks, the default one; a strategy may form more, of a part of the ranks. It carries
gradients (nccl for CUDA tensors, gloo for CPU tensors) and, over gloo, what ranks tell each other
(``rankup.messages.tree``). With a world size of 1 there is none. All runs of a process share it.

Each connection needs a file descriptor: without one gloo aborts the process without a message. gloo connects every two
ranks, unless it may connect those that have something to send to each other, when they have it. With many ranks it may.
"""

from __future__ import annotations

import os
import resource
import socket
import sys
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from rankup.errors import RankupError
from rankup.messages import tree
from rankup.runtime.distributed.control import Control
from rankup.runtime.distributed.rendezvous import meet
from rankup.runtime.distributed.shutdown import install_clean_shutdown
from rankup.runtime.distributed.waiting import Waiting
from rankup.strategies.base import TORCH
from rankup.world import BACKENDS, World
from rankup.world.address import interface_of, rendezvous, route_to


@dataclass(frozen=True)
class Groups:
    """``control`` is None with a world size of 1, as is ``default``, the process group."""

    world: World
    control: Control | None = None
    default: dist.ProcessGroup | None = None


_formed: Groups | None = None  # of this process


def of_process(what: str) -> Groups:
    """The groups that ``rankup.init`` has formed; ``what`` needs them. Raises RankupError before."""
    if _formed is not None and _formed.default is dist.group.WORLD:
        return _formed
    world = World.detect(os.environ)
    if world.world_size == 1:
        return Groups(world)
    raise RankupError(
        "no-init",
        f"{what} on rank {world.rank} of {world.world_size}, which has not met the others yet",
        hint="call rankup.init() before, on every rank",
        exit_code=1,
    )


def start_groups(world: World, device: torch.device, timeout: timedelta) -> Groups:
    """Form the default group, or use the one that the script has formed."""
    global _formed
    if world.world_size == 1:
        return Groups(world)
    owned = not dist.is_initialized()
    raise_limit()
    if owned:
        if world.world_size >= LAZY_FROM:
            os.environ.setdefault("TORCH_GLOO_LAZY_INIT", "1")
        check_limit(world)
        _choose_interface(world)
        backend = BACKENDS[device.type]
        try:
            _init_default(world, backend, timeout)
            tree.of_all_ranks("meeting", timeout).barrier()  # an error if ranks do not reach each other
        except (RuntimeError, OSError, ValueError) as error:
            if is_too_few(error):
                raise too_few("the connections to the other ranks need more open files") from error
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
    before = _formed if _formed is not None and _formed.default is dist.group.WORLD else None
    control = before.control if before is not None else None
    if control is None or control.timeout != timeout:
        control = Control(world, timeout, Waiting(world) if control is None else control.waiting)
    _compare_devices(world, device, control)
    if before is None:
        install_clean_shutdown(owned, control.waiting.end)
    _formed = Groups(world, control, dist.group.WORLD)
    return _formed


def _init_default(world: World, backend: str, timeout: timedelta) -> None:
    if world.launcher == "torchrun":  # its agent's store is there already
        store, rank, world_size = next(dist.rendezvous("env://", timeout=timeout))  # type: ignore[attr-defined]
        # torch 2.13 hands a restarted group the store of the one before, where the addresses are of the dead. Agents
        # count restarts each for itself: one that restarts because of another node does not. So where each start has
        # a store of its own, the count must not matter.
        own_store = os.environ.get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE") == "1"
        attempt = "0" if own_store else os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = dist.PrefixStore(f"rankup/attempt-{attempt}", store)  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=timeout)
        return
    dist.init_process_group(
        backend, store=meet(world, timeout), rank=world.rank, world_size=world.world_size, timeout=timeout
    )


def _choose_interface(world: World) -> None:
    """Tell gloo one concrete interface: by itself it resolves the host's name, which fails or loops back on many."""
    if "GLOO_SOCKET_IFNAME" in os.environ:
        return
    if world.num_nodes == 1:
        name: str | None = "lo0" if sys.platform == "darwin" else "lo"
    else:
        head = os.environ.get("MASTER_ADDR") or rendezvous(world, os.environ).host
        others = [host for host in world.hosts if host not in (head, socket.gethostname())]
        peer = others[0] if world.node_rank == 0 and others else head
        try:
            name = interface_of(route_to(peer))
        except OSError:
            return  # gloo's own choice, and its own error
    if name and (world.num_nodes == 1 or not name.startswith("lo")):
        os.environ["GLOO_SOCKET_IFNAME"] = name


def _compare_devices(world: World, device: torch.device, control: Control) -> None:
    """An early error for two ranks on one GPU, or a rank on a CPU among GPUs: NCCL's own is late and unclear."""
    on_gpu = device.type != "cpu"
    which = str(torch.get_device_module(device).get_device_properties(device).uuid) if on_gpu else ""
    everyone = control.gather("rankup.init", (socket.gethostname(), device.type, which))
    without = [rank for rank, (_, kind, _) in enumerate(everyone) if kind == "cpu"]
    if without and len(without) < world.world_size:
        raise RankupError(
            "devices-differ",
            f"ranks {without} have no GPU, the others have one",
            context=", ".join(sorted({everyone[rank][0] for rank in without})),
            hint="torch sees no GPU there: its driver, its CUDA_VISIBLE_DEVICES? or device='cpu' for all",
            exit_code=1,
        )
    twins = [rank for rank, other in enumerate(everyone) if other == everyone[world.rank]]
    if on_gpu and len(twins) > 1:
        raise RankupError(
            "gpu-shared",
            f"ranks {twins} share one GPU, {device} on {everyone[world.rank][0]}",
            hint="start as many processes per node as it has GPUs, or use device='cpu'",
            exit_code=1,
        )


#: A soft limit is raised to the hard one, but at most to this: some programs close every possible descriptor.
ENOUGH = 65_536
#: From so many ranks on gloo connects two ranks when one has something for the other. Of more ranks each would read the
#: addresses of all from the store of rank 0: megabytes, of thousands of ranks terabytes. With fewer ranks all are
#: connected at once, since a rank that ends before it is connected is only noticed after a timeout.
LAZY_FROM = 128
#: What a group costs beside one socket per rank (measured with torch 2.13: world size + 3).
PER_GROUP = 3
#: Of the store of rank 0, sockets per rank: of the group, and of ``Waiting``.
CLIENTS = 2
#: Data files, loaders' pipes, logs, snapshots.
BESIDES = 64


def raise_limit() -> None:
    """The soft limit of open files becomes the hard one, at most ``ENOUGH``; never lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connections(world_size: int) -> int:
    """The most other ranks that a rank is connected to by a gloo group of all ranks."""
    if TORCH < (2, 8) or os.environ.get("TORCH_GLOO_LAZY_INIT", "0") != "1":
        return world_size - 1
    # By a tree of all ranks and one of a node's; in a ring; and as far apart as powers of two.
    return min(world_size - 1, 2 * (tree.FAN_OUT + 1) + 2 + 2 * world_size.bit_length())


def check_limit(world: World) -> None:
    """RankupError ``too-few-files`` if the ranks need more descriptors than this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A strategy has two groups of parts of the ranks, at most: a row and a column of them.
    groups = connections(world.world_size) + connections(world.world_size // 2) + 3 * PER_GROUP
    store = 0 if world.launcher == "torchrun" else CLIENTS * world.world_size  # torchrun's agent has it
    need = _open() + groups + store + BESIDES
    if soft != resource.RLIM_INFINITY and soft < need:
        raise too_few(f"rank 0 of {world.world_size} processes needs about {need} open files", soft)


def too_few(what: str, limit: int | None = None) -> RankupError:
    if limit is None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return RankupError(
        "too-few-files",
        f"{what}, and the limit here is {limit}",
        context=f"hard limit {resource.getrlimit(resource.RLIMIT_NOFILE)[1]}",
        hint="raise it before the job starts: `ulimit -n 65536`, or LimitNOFILE= of the scheduler's daemon "
        "and /etc/security/limits.conf if the hard limit is too low",
        exit_code=1,
    )


def is_too_few(error: BaseException) -> bool:
    """Whether ``error``, also one of gloo's, says that no descriptor was left."""
    return "Too many open files" in str(error)


def _open() -> int:
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            return len(os.listdir(folder))  # noqa: PTH208
        except OSError:
            continue
    return 16
