"""What can be wrong between nodes that were started one by one, in words for both sides."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass

from rankup.errors import RankupError


@dataclass(frozen=True)
class NodeInfo:
    """What a node says of itself; ``torch`` is a version, "" where there is none."""

    node_rank: int
    nnodes: int
    nproc: int
    host: str
    torch: str = ""


def endpoint_text(endpoint: tuple[str, int]) -> str:
    return f"[{endpoint[0]}]:{endpoint[1]}" if ":" in endpoint[0] else f"{endpoint[0]}:{endpoint[1]}"


def cannot_bind(endpoint: tuple[str, int], error: OSError, here: str) -> RankupError:
    where = endpoint_text(endpoint)
    if error.errno == errno.EADDRINUSE:
        return RankupError(
            "endpoint-in-use",
            f"port {endpoint[1]} is in use on this machine",
            context=f"--rdzv-endpoint {where}",
            hint="is another --node-rank 0 running here? Otherwise choose another port, on all nodes",
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return RankupError(
            "endpoint-not-here",
            f"this machine ({here}) has no address {endpoint[0]!r}, but was started with --node-rank 0",
            context=f"--rdzv-endpoint {where}",
            hint="--node-rank 0 belongs on the machine that the endpoint names",
        )
    return RankupError(
        "endpoint-unusable",
        f"cannot listen at {where}: {error.strerror}",
        hint="ports below 1024 need root; choose one between 1024 and 32767",
    )


def problem_with(hello: NodeInfo, joined: Mapping[int, NodeInfo]) -> RankupError | None:
    head = joined[0]
    if hello.nnodes != head.nnodes:
        return RankupError(
            "nodes-disagree",
            f"the nodes were started with different --nnodes: {head.nnodes} on {head.host} (node 0), "
            f"{hello.nnodes} on {hello.host} (node {hello.node_rank})",
            hint="give every node the same --nnodes",
        )
    if hello.node_rank in joined:
        return RankupError(
            "equal-node-ranks",
            f"two nodes were started with --node-rank {hello.node_rank}: "
            f"one on {joined[hello.node_rank].host}, one on {hello.host}",
            hint=f"each node needs its own --node-rank, 0 to {head.nnodes - 1}",
        )
    return None  # the range of a node rank is checked where it is given


def differences(joined: Mapping[int, NodeInfo]) -> list[str]:
    minors = {rank: ".".join(hello.torch.split(".")[:2]) for rank, hello in sorted(joined.items())}
    if len(set(minors.values())) == 1:
        return []
    listed = ", ".join(f"{version or 'none'} on node {rank}" for rank, version in minors.items())
    return [f"warning: the nodes have different versions of torch: {listed}"]


def nodes_missing(missing: list[int], nnodes: int, timeout: float, where: str) -> RankupError:
    ranks = ", ".join(map(str, missing))
    return RankupError(
        "nodes-missing",
        f"of {nnodes} nodes, node {ranks} did not come within {timeout:g} s",
        context=f"node 0 waited at {where}",
        hint=f"on the missing machine: rankup run --nnodes {nnodes} --node-rank {missing[0]} "
        f"--rdzv-endpoint {where} …; --rdzv-timeout waits longer",
        exit_code=1,
    )


def node_lost(hello: NodeInfo, error: OSError) -> RankupError:
    return RankupError(
        "node-lost",
        f"node {hello.node_rank} on {hello.host} was here and is gone: {error.strerror}",
        hint="see what it says there, and start all nodes again",
        exit_code=1,
    )
