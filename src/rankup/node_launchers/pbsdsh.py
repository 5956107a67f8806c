"""pbsdsh: one call per node, since -n counts the lines of the node file, which repeats hosts.

Its tasks have neither our environment nor our folder, and their exit codes do not come back: a script per node
brings the former along, and leaves the code in a file.
"""

from __future__ import annotations

from rankup.node_launchers.agents import one_by_one
from rankup.node_launchers.base import Agents, AgentsScript


def start(agents: Agents) -> AgentsScript:
    return one_by_one(
        agents,
        [
            """exec pbsdsh -n "$(awk -v host="${HOSTS[$1]}" '$0 == host { print NR - 1; exit }' "$PBS_NODEFILE")" \\""",
            """  -- bash "$RUN/agent-$1.sh\"""",
        ],
    )
