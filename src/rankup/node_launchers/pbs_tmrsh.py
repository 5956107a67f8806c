"""pbs_tmrsh, PBS's own remote shell. Unlike those of ssh, its processes are counted and ended by PBS."""

from __future__ import annotations

from rankup.node_launchers.agents import one_by_one
from rankup.node_launchers.base import Agents, AgentsScript


def start(agents: Agents) -> AgentsScript:
    return one_by_one(agents, ['exec pbs_tmrsh "${HOSTS[$1]}" bash "$RUN/agent-$1.sh"'])
