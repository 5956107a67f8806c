"""What can be wrong between nodes that were started one by one: findings that every node gets."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rankup.core.endpoint import Endpoint
from rankup.errors import RankupError
from rankup.findings.engine import Source
from rankup.findings.finding import Finding, Severity


@dataclass(frozen=True)
class NodeInfo:
    """What a node says of itself; ``torch`` is a version, "" without torch."""

    node_rank: int
    nnodes: int
    nproc: int
    host: str
    torch: str = ""


def cannot_bind(endpoint: Endpoint, error: OSError, here: str) -> RankupError:
    where = str(endpoint)
    if error.errno == errno.EADDRINUSE:
        return RankupError(
            "endpoint-in-use",
            f"port {endpoint.port} is in use on this machine",
            context=f"--rdzv-endpoint {where}",
            hint="is another --node-rank 0 running here? Otherwise choose another port, on all nodes",
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return RankupError(
            "endpoint-not-here",
            f"this machine ({here}) has no address {endpoint.host!r}, but was started with --node-rank 0",
            context=f"--rdzv-endpoint {where}",
            hint="--node-rank 0 belongs on the machine that the endpoint names",
        )
    return RankupError(
        "endpoint-unusable",
        f"cannot listen at {where}: {error.strerror}",
        hint="ports below 1024 need root; choose one between 1024 and 32767",
    )


@dataclass(frozen=True)
class Meeting:
    """A node that comes, and the nodes that have joined before it, by node rank; 0 is among them."""

    node: NodeInfo
    joined: Mapping[int, NodeInfo]


def _node_counts(meeting: Meeting) -> Iterator[Finding]:
    node, head = meeting.node, meeting.joined[0]
    if node.nnodes != head.nnodes:
        yield Finding(
            "nodes-disagree",
            Severity.ERROR,
            f"the nodes were started with different --nnodes: {head.nnodes} on {head.host} (node 0), "
            f"{node.nnodes} on {node.host} (node {node.node_rank})",
            fix="give every node the same --nnodes",
        )


def _node_ranks(meeting: Meeting) -> Iterator[Finding]:
    node, joined = meeting.node, meeting.joined
    if node.node_rank in joined:
        yield Finding(
            "equal-node-ranks",
            Severity.ERROR,
            f"two nodes were started with --node-rank {node.node_rank}: "
            f"one on {joined[node.node_rank].host}, one on {node.host}",
            fix=f"each node needs its own --node-rank, 0 to {joined[0].nnodes - 1}",
        )


# The range of a node rank is checked where it is given.
NODE_PROBLEMS: Mapping[str, Source[Meeting]] = {
    "nodes-disagree": _node_counts,
    "equal-node-ranks": _node_ranks,
}


def _torch_versions(joined: Mapping[int, NodeInfo]) -> Iterator[Finding]:
    minors = {rank: ".".join(node.torch.split(".")[:2]) for rank, node in sorted(joined.items())}
    if len(set(minors.values())) > 1:
        listed = ", ".join(f"{version or 'none'} on node {rank}" for rank, version in minors.items())
        yield Finding(
            "torch-differs",
            Severity.WARNING,
            f"the nodes have different versions of torch: {listed}",
            why="another version may not connect, or compute other numbers",
            fix="use the same environment on all nodes",
        )


NODE_DIFFERENCES: Mapping[str, Source[Mapping[int, NodeInfo]]] = {"torch-differs": _torch_versions}


def nodes_missing(missing: list[int], nnodes: int, timeout: float, where: str) -> RankupError:
    ranks = ", ".join(map(str, missing))
    return RankupError(
        "nodes-missing",
        f"of {nnodes} nodes, node {ranks} did not join within {timeout:g} s",
        context=f"node 0 waited at {where}",
        hint=f"on the missing machine: rankup run --nnodes {nnodes} --node-rank {missing[0]} "
        f"--rdzv-endpoint {where} …; --rdzv-timeout waits longer",
        exit_code=1,
    )


def node_lost(hello: NodeInfo, error: OSError) -> RankupError:
    return RankupError(
        "node-lost",
        f"the connection to node {hello.node_rank} on {hello.host} was lost: {error.strerror}",
        hint="read the output of that node, and start all nodes again",
        exit_code=1,
    )
