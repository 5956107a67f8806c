"""torchrun, one agent per node. Options are underscored: every torch version takes those."""

from __future__ import annotations

from collections.abc import Sequence

from rankup.launchers.base import Start, argument_code, expanded_code, path_code
from rankup.spec.jobspec import JobSpec

# With it each start of the ranks has a store of its own. Without it torch 2.13 hands a restarted group the store of the
# one before, where it finds the addresses of the dead and waits for them; and it tells a node that joins later none.
OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}

# Without "--" torchrun takes an option of the script, as --n, for an abbreviation of one of its own.
_COMMAND_FOLLOWS = ("--no_python", "--")


def tokens(spec: JobSpec, run_id: str, guard: Sequence[str]) -> list[str]:
    head = spec.node_rank == 0
    if spec.endpoint is None:
        # Without an address torchrun asks the resolver for this host's name, which laptops and containers lack.
        rendezvous = ["--standalone", "--local_addr=127.0.0.1"]
    elif spec.max_restarts == 0:
        # Static: node ranks are as given, so rank 0 is on the host that everyone was told.
        rendezvous = [
            f"--node_rank={spec.node_rank}",
            "--rdzv_backend=static",
            f"--rdzv_id={run_id}",
            f"--master_addr={spec.endpoint.host}",
            f"--master_port={spec.endpoint.port}",
        ]
    else:
        # Only the dynamic rendezvous can form the group again after a failure; it orders nodes by arrival.
        rendezvous = [
            "--rdzv_backend=c10d",
            f"--rdzv_id={run_id}",
            f"--rdzv_endpoint={spec.endpoint}",
            f"--rdzv_conf=is_host={int(head)}",
            *([f"--local_addr={spec.endpoint.host}"] if head else []),
        ]
    return [
        *(spec.python, "-m", "torch.distributed.run"),
        f"--nnodes={spec.nodes}",
        f"--nproc_per_node={spec.nproc_per_node}",
        f"--max_restarts={spec.max_restarts}",
        *_binding(spec),
        *rendezvous,
        *_COMMAND_FOLLOWS,
        *guard,
        *spec.rank_command,
    ]


_KEPT = ("--tee=3", '--log_dir="$RUN/logs/torchrun"')


def agent(start: Start) -> list[str]:
    """Bash of one node's agent, in a job's script; NODE_RANK is the node's.

    ``--tee`` has every line of a rank printed, with the prefix that the script's settings give, and kept in a file.
    """
    first = []
    if start.max_restarts:
        first = ["# A restarted group needs a store of its own: in that of torch 2.13 it waits for the dead."]
        first += [f"export {name}={value}" for name, value in OWN_STORE.items()]
    if start.nodes == 1:
        rendezvous = ["--standalone", "--local_addr=127.0.0.1"]
    elif start.max_restarts == 0:
        rendezvous = [
            '--node_rank="$NODE_RANK"',
            "--rdzv_backend=static",
            '--master_addr="$MASTER_ADDR"',
            '--master_port="$MASTER_PORT"',
        ]
    else:
        # After a failure only the dynamic rendezvous can form the group again. It orders the nodes by arrival, so any
        # of them may become rank 0's, and has to know the address at which the others reach it.
        first = [
            *first,
            "here=$(ip -o -4 route get \"$MASTER_ADDR\" | sed -n 's/.* src \\([0-9.]*\\).*/\\1/p')",
        ]
        rendezvous = [
            "--rdzv_backend=c10d",
            '--rdzv_id="$MASTER_PORT"',
            '--rdzv_endpoint="$MASTER_ADDR:$MASTER_PORT"',
            '--rdzv_conf="is_host=$((NODE_RANK == 0))"',
            '--local_addr="${here:-$(hostname)}"',
        ]
    options = [
        f"--nnodes={start.nodes}",
        f"--nproc_per_node={start.nproc}",
        f"--max_restarts={start.max_restarts}",
        *_binding(start),
    ]
    parts = [
        ["exec", *map(expanded_code, start.prefix), *_program(start)],
        options,
        rendezvous,
        list(_KEPT),
        [
            *_COMMAND_FOLLOWS,
            "sh",
            '"$RUN/rank.sh"',
            *(argument_code(word, start.staged) for word in _script(start)),
        ],
    ]
    command = [" ".join(words) + " \\" for words in parts]
    return [
        *first,
        command[0],
        *("  " + line for line in command[1:-1]),
        "  " + command[-1].removesuffix(" \\"),
    ]


def _binding(job: JobSpec | Start) -> list[str]:
    return [f"--numa_binding={job.numa_binding}"] if job.numa_binding else []


def _program(start: Start) -> list[str]:
    # torchrun as a program is the one of the first Python on PATH: right in an environment, wrong beside one.
    if start.python == "python":
        return [path_code(start.torchrun)]
    return [path_code(start.python), "-m", "torch.distributed.run"]


def _script(start: Start) -> tuple[str, ...]:
    """The rank's command for rank.sh: options and a script for torchrun's own Python, or any program."""
    if start.command[0] == start.python:
        return ("-u", *start.command[1:])
    return start.command
