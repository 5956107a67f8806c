"""ssh, for clusters whose nodes accept it without a password."""

from __future__ import annotations

from rankup.node_launchers.agents import one_by_one
from rankup.node_launchers.base import Agents, AgentsScript


def start(agents: Agents) -> AgentsScript:
    # With a terminal (-tt) the agent is told when ssh is gone.
    reach = 'exec ssh -tt -o BatchMode=yes "${HOSTS[$1]}" "bash $(printf %q "$RUN/agent-$1.sh")" </dev/null'
    return one_by_one(agents, [reach])
