"""pbsdsh: one call per node, since -n counts the lines of the node file, which repeats hosts.

Its tasks have neither our environment nor our folder, and their exit codes do not come back: a script per node
brings the former along, and leaves the code in a file.
"""

from __future__ import annotations

from rankup.node_launchers.base import AgentLaunch


def commands(plan: AgentLaunch) -> list[list[str]]:
    return [
        ["pbsdsh", "-n", str(line), "--", "bash", str(plan.script_of(node))]
        for node, line in enumerate(plan.lines)
    ]
