"""Open MPI's mpiexec: one unbound process per host of a list of our own, in its order."""

from __future__ import annotations

from rankup.node_launchers.agents import all_at_once
from rankup.node_launchers.base import Agents, AgentsScript


def start(agents: Agents) -> AgentsScript:
    return all_at_once(
        agents,
        [
            'mpiexec --hostfile "$RUN/hosts" -np "${#HOSTS[@]}" --map-by ppr:1:node --bind-to none -x RUN \\',
            "  bash -c 'exec bash \"$RUN/agent-$OMPI_COMM_WORLD_RANK.sh\"' &",
        ],
    )
