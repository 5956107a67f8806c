"""PALS's mpiexec (Cray EX): it knows the job's nodes, and rejects Open MPI's options."""

from __future__ import annotations

from rankup.core import shell
from rankup.node_launchers.agents import all_at_once
from rankup.node_launchers.base import AgentLaunch, Agents, AgentsScript


def commands(plan: AgentLaunch) -> list[list[str]]:
    return [
        [
            "mpiexec",
            *("-n", str(len(plan.hosts))),
            *("--ppn", "1"),
            *("--hostfile", str(plan.hostfile)),
            *("--cpu-bind", "none"),
            "bash",
            "-c",
            f'exec bash {shell.quote([str(plan.folder)])}/agent-"$PALS_RANKID".sh',
        ]
    ]


def start(agents: Agents) -> AgentsScript:
    return all_at_once(
        agents,
        [
            'mpiexec -n "${#HOSTS[@]}" --ppn 1 --hostfile "$RUN/hosts" --cpu-bind none --envall \\',
            "  bash -c 'exec bash \"$RUN/agent-$PALS_RANKID.sh\"' &",
        ],
    )
