"""PALS's mpiexec (Cray EX): it knows the job's nodes, and rejects Open MPI's options."""

from __future__ import annotations

from rankup.node_launchers.agents import all_at_once
from rankup.node_launchers.base import Agents, AgentsScript


def start(agents: Agents) -> AgentsScript:
    return all_at_once(
        agents,
        [
            'mpiexec -n "${#HOSTS[@]}" --ppn 1 --hostfile "$RUN/hosts" --cpu-bind none --envall \\',
            "  bash -c 'exec bash \"$RUN/agent-$PALS_RANKID.sh\"' &",
        ],
    )
