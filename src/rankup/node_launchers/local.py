"""One node, and this is it."""

from __future__ import annotations

from rankup.node_launchers.agents import on_this_node
from rankup.node_launchers.base import Agents, AgentsScript


def start(agents: Agents) -> AgentsScript:
    return on_this_node(agents)
