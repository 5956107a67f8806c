"""srun: one task per node, with all of the node's cores, and the environment of its caller."""

from __future__ import annotations

from rankup.core import shell
from rankup.node_launchers.agents import by_scancel
from rankup.node_launchers.base import Agents, AgentsScript


def start(agents: Agents) -> AgentsScript:
    nodes = agents.nodes
    options = [f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1"]
    options += [f"--cpus-per-task={agents.cpus}"] if agents.cpus else []  # since 22.05 not taken from the job
    options += [f"--nodelist={','.join(agents.hosts)}"] if agents.hosts else []
    options += ["--cpu-bind=none", "--kill-on-bad-exit=1", "--mpi=none", *agents.options]
    own = ["NODE_RANK=$SLURM_NODEID"] if nodes > 1 else []
    if not agents.whole_job:
        own += ['[ "$SLURM_NODEID" -gt 0 ] || echo "$SLURM_STEP_ID" >"$RUN/agents.step"']
    script = "\n      ".join(["", *own, *agents.agent])
    return AgentsScript(
        (
            *([] if agents.whole_job else ['rm -f "$RUN/agents.step" # of an earlier attempt']),
            "# One agent per node; each starts the ranks of its node. The single quotes matter: here, outside of",
            "# srun, SLURM_NODEID is 0 for everyone.",
            f"srun {' '.join(options)} \\",
            f"  bash -c {shell.quote([script])} &",
            "workers=$!",
        ),
        by_scancel(whole_job=agents.whole_job),
    )
