"""Open MPI's mpiexec: one unbound process per host of a list of our own, in its order."""

from __future__ import annotations

from rankup.core import shell
from rankup.node_launchers.agents import all_at_once
from rankup.node_launchers.base import AgentLaunch, Agents, AgentsScript


def commands(plan: AgentLaunch) -> list[list[str]]:
    return [
        [
            "mpiexec",
            "--hostfile",
            str(plan.hostfile),
            "-np",
            str(len(plan.hosts)),
            *("--map-by", "ppr:1:node"),
            *("--bind-to", "none"),
            "bash",
            "-c",
            f'exec bash {shell.quote([str(plan.folder)])}/agent-"$OMPI_COMM_WORLD_RANK".sh',
        ]
    ]


def start(agents: Agents) -> AgentsScript:
    return all_at_once(
        agents,
        [
            'mpiexec --hostfile "$RUN/hosts" -np "${#HOSTS[@]}" --map-by ppr:1:node --bind-to none -x RUN \\',
            "  bash -c 'exec bash \"$RUN/agent-$OMPI_COMM_WORLD_RANK.sh\"' &",
        ],
    )
