"""srun: one task per node, with all of the node's cores, and the environment of whoever calls it."""

from __future__ import annotations

from rankup.core import shell
from rankup.node_launchers.base import NODE_RANK, AgentLaunch, Agents, AgentsScript


def commands(plan: AgentLaunch) -> list[list[str]]:
    nodes = len(plan.hosts)
    # srun does not take -c from the job (since 22.05), and binds to what it was given: an agent needs all cores.
    cpus = [f"--cpus-per-task={plan.cpus}"] if plan.cpus else []
    return [
        [
            "srun",
            f"--nodes={nodes}",
            f"--ntasks={nodes}",
            "--ntasks-per-node=1",
            *cpus,
            "--cpu-bind=none",
            "--kill-on-bad-exit=1",
            "bash",
            "-c",
            # Expanded by the task's bash: in the batch shell SLURM_NODEID is 0 for everyone.
            "exec " + " ".join('"$SLURM_NODEID"' if t == NODE_RANK else shell.quote([t]) for t in plan.agent),
        ]
    ]


def start(agents: Agents) -> AgentsScript:
    nodes = agents.nodes
    options = [f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1"]
    options += [f"--cpus-per-task={agents.cpus}"] if agents.cpus else []  # since 22.05 not taken from the job
    options += ["--cpu-bind=none", "--kill-on-bad-exit=1", "--mpi=none"]
    own = ["NODE_RANK=$SLURM_NODEID"] if nodes > 1 else []
    script = "\n      ".join(["", *own, *agents.agent])
    return AgentsScript(
        (
            "# One agent per node; each starts the ranks of its node. The single quotes matter: here, outside of",
            "# srun, SLURM_NODEID is 0 for everyone.",
            f"srun {' '.join(options)} \\",
            f"  bash -c {shell.quote([script])} &",
            "workers=$!",
        )
    )
