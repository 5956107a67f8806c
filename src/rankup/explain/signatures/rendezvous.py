"""How ranks find each other: torchrun's rendezvous, torch's store."""

from __future__ import annotations

from rankup.explain.signatures.signature import ROOT, WEAK, Signature

RENDEZVOUS = (
    Signature(
        name="agents-missing",
        pattern="RendezvousTimeoutError",
        level=WEAK,
        what="torchrun waited for agents on other nodes, and not all of them came",
        cause=(
            "torchrun was started with more --nnodes than agents that reach the endpoint: it runs "
            "on the first node only, or the others cannot connect to it"
        ),
        fix=(
            "start one torchrun per node (`srun --ntasks-per-node 1 torchrun …`), with the host "
            "name of the first node as endpoint; `rankup submit` does both"
        ),
        example="torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
        rules=("RK101", "RK102", "RK124", "RK144"),
    ),
    Signature(
        name="rendezvous-closed",
        pattern="RendezvousClosedError|rendezvous .{0,40}has been closed",
        level=WEAK,
        what="this agent came to a rendezvous that had ended already",
        cause=(
            "the other agents had failed or finished, or an earlier job used the same endpoint and --rdzv-id"
        ),
        fix="look for the error of the other nodes; use the job's id as --rdzv-id",
        example="torch.distributed.elastic.rendezvous.api.RendezvousClosedError",
        rules=("RK144",),
    ),
    Signature(
        name="rendezvous-connection",
        pattern="RendezvousConnectionError",
        level=WEAK,
        what="torchrun cannot connect to the rendezvous endpoint",
        cause=(
            "no agent listens there: a wrong host name or port, a firewall, or the first node's "
            "agent has not started"
        ),
        fix=(
            "take the first host of the allocation (`scontrol show hostnames $SLURM_JOB_NODELIST | "
            "head -n 1`)"
        ),
        example=(
            "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to "
            "the C10d store has failed."
        ),
        rules=("RK111", "RK114"),
    ),
    Signature(
        name="endpoint-unreachable",
        pattern=(
            "client socket has timed out.*connect|client socket has failed to connect to"
            "|No route to host|Network is unreachable"
        ),
        level=WEAK,
        what="a rank cannot connect to rank 0's address",
        cause=(
            "rank 0 does not listen there: MASTER_ADDR or the port is wrong, rank 0 has not "
            "started or has failed, or a firewall is in between"
        ),
        fix=(
            "MASTER_ADDR has to be the host of rank 0, as other nodes see it (not localhost); look "
            "for an earlier error of rank 0"
        ),
        example=(
            "torch.distributed.DistNetworkError: The client socket has timed out after 300000ms "
            "while trying to connect to (10.0.0.1, 29500)."
        ),
        rules=("RK111", "RK112"),
        likely=True,
        better=("host-unresolvable",),
    ),
    Signature(
        name="host-unresolvable",
        pattern=(
            r"network addresses of \(.*\) cannot be retrieved \(gai error|Name or service not known"
            "|Temporary failure in name resolution|nodename nor servname provided"
        ),
        level=WEAK,
        what="a host name cannot be resolved",
        cause=(
            "this node knows no address of that host: a typing error, a name of another network, "
            "or no name service on the node"
        ),
        fix=(
            "take a name that `getent hosts NAME` resolves on all nodes; in a job the names of "
            "`scontrol show hostnames`"
        ),
        example=(
            "[W1122 14:40:01.1 socket.cpp:767] [c10d] The IPv6 network addresses of (gpu-17-3, "
            "29500) cannot be retrieved (gai error: -2 - Name or service not known)."
        ),
    ),
    Signature(
        name="port-in-use",
        pattern="EADDRINUSE|errno: 98|[Aa]ddress already in use",
        level=ROOT,
        what="the port of the rendezvous is in use on this node",
        cause=(
            "another job or an earlier one of yours listens there, or several launchers start on "
            "one node, each with the same port"
        ),
        fix=(
            "start one torchrun per node; take a port that follows from the job's id, or "
            "--rdzv-endpoint HOST:0 on one node"
        ),
        example=(
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any "
            "local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, "
            "message: address already in use"
        ),
        rules=("RK104", "RK115"),
    ),
    Signature(
        name="clients-missing",
        pattern=r"Timed out after \d+ seconds waiting for clients\. (\d+)/(\d+) clients joined",
        level=WEAK,
        what="rank 0 waited for the other ranks, and not all of them came",
        cause=(
            "the world size is larger than the number of processes that were started, or some "
            "cannot reach rank 0"
        ),
        fix="let the launcher set WORLD_SIZE, and read it from the environment",
        example=(
            "torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. 2/4 "
            "clients joined."
        ),
        rules=("RK204", "RK105"),
        better=("host-unresolvable", "endpoint-unreachable"),
    ),
    Signature(
        name="not-launched",
        pattern="environment variable (RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT) expected, but not set",
        level=ROOT,
        what="the script was started without a launcher",
        cause=("init_process_group reads rank and address from the environment, and nobody has set them"),
        fix=(
            "start it with `rankup run train.py` or torchrun; under srun set RANK, WORLD_SIZE, "
            "MASTER_ADDR and MASTER_PORT"
        ),
        example=(
            "ValueError: Error initializing torch.distributed using env:// rendezvous: environment "
            "variable RANK expected, but not set"
        ),
        rules=("RK166",),
    ),
    Signature(
        name="lightning-sizes",
        pattern=r"You set `(devices|num_nodes|--ntasks)=\d+` in (Lightning|your SLURM)",
        level=ROOT,
        what="Lightning's Trainer has other sizes than the job",
        cause="devices must be the tasks per node, and num_nodes the number of nodes",
        fix=(
            "set --ntasks-per-node to the devices of a node, and Trainer(devices=…, num_nodes=…) to the job's "
            "numbers"
        ),
        example=(
            "ValueError: You set `devices=8` in Lightning, but the number of tasks per node configured in SLURM "
            "`--ntasks-per-node=1` does not match."
        ),
        rules=("RK167",),
    ),
    Signature(
        name="group-not-initialized",
        pattern="Default process group has not been initialized",
        level=ROOT,
        what="a collective was called before init_process_group",
        cause=(
            "the process group does not exist on this rank: init_process_group was not called, or comes later"
        ),
        fix="call init_process_group (or `rankup.init()`) first, on all ranks",
        example=(
            "ValueError: Default process group has not been initialized, please make sure to call "
            "init_process_group."
        ),
        rules=("RK307",),
    ),
    Signature(
        name="nccl-not-built",
        pattern="Distributed package doesn't have NCCL built in|NCCL support is not compiled",
        level=ROOT,
        what="this torch has no NCCL",
        cause=("a torch without CUDA (a CPU build) is installed, and the script asks for the backend nccl"),
        fix="install a CUDA build of torch, or use the backend gloo on CPUs",
        example="RuntimeError: Distributed package doesn't have NCCL built in",
    ),
)
