"""Made-up facts of healthy clusters, for tests that break one thing of them."""

from __future__ import annotations

import copy
from typing import Any

from rankup.doctor.facts import Facts

Cluster = dict[str, Any]


def healthy(nodes: int = 2, per_node: int = 2, *, gpus: bool = True) -> dict[str, Any]:
    """What ``facts`` takes: everything is as it should be."""
    hosts = tuple(f"node{i + 1}" for i in range(nodes))
    return {
        "hosts": hosts,
        "counts": (per_node,) * nodes,
        "nodes": {i: _node(i, hosts, per_node if gpus else 0) for i in range(nodes)},
        "ranks": [
            _rank(node * per_node + i, i, node, nodes, per_node, gpus)
            for node in range(nodes)
            for i in range(per_node)
        ],
        "launch": {"seconds": 1.5, "noise": []},
        "here": {"architecture": "x86_64"},
    }


def facts(cluster: dict[str, Any]) -> Facts:
    return Facts(**copy.deepcopy(cluster))


def gpu(node: int, index: int) -> str:
    return f"GPU-{node:04d}-{index}"


def address(node: int) -> str:
    return f"10.0.{node // 250}.{node % 250 + 1}"


def failing(cluster: Cluster, node: int, peer: int, kind: str = "timeout") -> None:
    how = {"peer": peer, "kind": kind, "address": address(peer), "port": 20000}
    cluster["nodes"][node]["network"]["failed"].append(how)


def silent(cluster: Cluster, node: int, kind: str) -> Cluster:
    del cluster["nodes"][node]
    cluster["ranks"] = [one for one in cluster["ranks"] if one["node"] != node]
    for other in cluster["nodes"]:
        failing(cluster, other, node, kind)
    return cluster


def five_faults() -> tuple[Cluster, dict[str, str]]:
    """4,096 ranks on 512 nodes, and what must be found: code → host."""
    cluster = healthy(512, 8)
    nodes = cluster["nodes"]
    silent(cluster, 17, "refused")
    nodes[100]["software"]["torch"] = "2.6.0"
    nodes[200]["machine"]["shm"] = {"bytes": 2**20, "free": 2**20}
    for peer in nodes:
        if peer != 300:
            failing(cluster, 300, peer)
            failing(cluster, peer, 300)
    nodes[400]["network"]["sends"] = {"401": 5e7}
    return cluster, {
        "agent-missing": "node18",
        "torch-differs": "node101",
        "no-shared-memory": "node201",
        "link-down": "node301",
        "slow-link": "node401",
    }


def _node(node: int, hosts: tuple[str, ...], gpus: int) -> dict[str, Any]:
    others = [peer for peer in range(len(hosts)) if peer != node]
    return {
        "hello": {"host": hosts[node], "pid": 1},
        "machine": {
            "hostname": hosts[node], "system": "Linux", "architecture": "x86_64", "cpus": 8, "affinity": list(range(8)),
            "numa": {"0": "0-3", "1": "4-7"}, "open_files": [1024, 524288], "locked_memory": [None, None],
            "umask": 0o22, "shm": {"bytes": 2**34, "free": 2**34}, "infiniband": [], "container": "",
        },
        "software": {
            "variables": {}, "executable": "/env/bin/python", "python": "3.11.2", "torch": "2.7.0", "cuda": "12.6",
            "nccl": "2.26.2", "script": None,
        },
        "gpus": {
            "state": "ok" if gpus else "none",
            "xid": [],
            "gpus": [
                {"index": i, "name": "NVIDIA H100", "uuid": gpu(node, i), "answers": True, "driver": "550.54",
                 "numa": None, "ecc_uncorrected": 0}
                for i in range(gpus)
            ],
        },
        "names": {
            "own_name": hosts[node], "own": [address(node)], "unresolved": [], "loopback": [],
            "interfaces": {
                "lo": {"addresses": ["127.0.0.1", "::1"], "up": True, "mbit": 0},
                "eth0": {"addresses": [address(node)], "up": True, "mbit": 25000},
                "ib0": {"addresses": [], "up": False, "mbit": 0},
            },
            "routes": [address(node)],
        },
        "ports": {"port": 0, "taken": None, "open_to_all": []},
        "shared": {
            "folder": "/shared", "exists": True, "inode": 77, "kind": "nfs4", "source": "server:/export",
            "free": 2**40, "read_only": False, "writable": True, "saw_mark": True, "unseen": [], "write_error": None,
            "write_rate": 5e8,
        },
        "network": {
            "addresses": [address(node)], "port": 20000, "listening": True, "reached": len(others), "failed": [],
            "unheard": [], "clock_offset": 0.001, "sends": {str(others[0]): 1.1e9} if others else {},
        },
        "speed": {"ranks": [], "busy": []},
        "late": 0.01,
        "end": {"unfinished": []},
    }  # fmt: skip


def _rank(rank: int, local: int, node: int, nodes: int, per_node: int, gpus: bool) -> dict[str, Any]:
    uuids = [gpu(node, i) for i in range(per_node)] if gpus else []
    each = max(8 // per_node, 1)
    return {
        "node": node, "rank": rank, "local_rank": local, "world_size": nodes * per_node,
        "local_world_size": per_node, "node_rank": node, "launcher": "srun", "host": f"node{node + 1}", "pid": 9,
        "affinity": [(local * each + i) % 8 for i in range(each)], "gpus": uuids,
        "device": uuids[local] if uuids else None, "visible": ",".join(map(str, range(per_node))) if gpus else None,
        "omp_threads": "1", "cpus_per_task": None,
        "job": {"scheduler": "slurm", "gpus": str(per_node) if gpus else None, "tasks": str(nodes * per_node)},
        "pmi": [],
    }  # fmt: skip
