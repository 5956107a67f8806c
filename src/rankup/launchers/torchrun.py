"""torchrun, one agent per node. Options are underscored: every torch version takes those."""

from __future__ import annotations

from rankup.launchers.base import Launch


def tokens(launch: Launch) -> list[str]:
    return [
        launch.python,
        "-m",
        "torch.distributed.run",
        f"--nnodes={launch.nnodes}",
        f"--nproc_per_node={launch.nproc}",
        f"--max_restarts={launch.max_restarts}",
        *_rendezvous(launch),
        "--no_python",
        *launch.command,
    ]


def _rendezvous(launch: Launch) -> list[str]:
    if launch.endpoint is None:
        # Without an address torchrun asks the resolver for this host's name, which laptops and containers lack.
        return ["--standalone", "--local_addr=127.0.0.1"]
    host, port = launch.endpoint
    if launch.max_restarts == 0:
        # Static: node ranks are as given, so rank 0 is on the host that everyone was told.
        return [
            f"--node_rank={launch.node_rank}",
            "--rdzv_backend=static",
            f"--rdzv_id={launch.run_id}",
            f"--master_addr={host}",
            f"--master_port={port}",
        ]
    # Only the dynamic rendezvous can form the group again after a failure; it orders nodes by arrival.
    head = launch.node_rank == 0
    endpoint = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return [
        "--rdzv_backend=c10d",
        f"--rdzv_id={launch.run_id}",
        f"--rdzv_endpoint={endpoint}",
        f"--rdzv_conf=is_host={int(head)}",
        *([f"--local_addr={host}"] if head else []),
    ]
