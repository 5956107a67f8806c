"""Bash that starts one agent per node, for any agent and any caller.

The script around it knows HOSTS (first seen first, so that the head is number 0) and RUN. srun brings the script's
environment to the nodes; for every other node launcher a script per node does (``agents.sh``). Some start all of these
scripts with one command (``all_at_once``), some one per node (``one_by_one``).
"""

from __future__ import annotations

from importlib.resources import files
from typing import cast

from rankup.core.registry import lookup
from rankup.errors import RankupError
from rankup.node_launchers import NODE_LAUNCHERS
from rankup.node_launchers.base import OWN, Agents, AgentsScript, NodeLauncher


def node_launcher(fanout: str, scheduler: str, *, nodes: int = 1, mpi: str = "openmpi") -> NodeLauncher:
    """What ``--fanout`` stands for; ``mpi`` says whose mpiexec it is. Raises what ``choose`` raises."""
    name = choose(fanout, scheduler)
    if name != "srun" and nodes == 1:
        name = "local"
    elif name == "mpiexec" and mpi == "pals":
        name = "pals"
    return cast(NodeLauncher, lookup("node launcher", name, NODE_LAUNCHERS))


def choose(fanout: str, scheduler: str) -> str:
    """What ``auto`` stands for. Raises ``fanout-not-here`` for one that the scheduler does not have."""
    own = {"slurm": "srun", "pbs": "pbsdsh"}.get(scheduler, "local")
    if fanout == "auto":
        return own
    if (fanout == "srun") != (own == "srun"):
        raise RankupError(
            "fanout-not-here",
            f"--fanout {fanout} cannot reach the nodes of a {scheduler} job",
            hint=f"leave it out: {own} does" if own != "local" else "leave it out: there is one node",
        )
    return fanout


def on_this_node(agents: Agents) -> AgentsScript:
    return AgentsScript(
        ("start_agent", "workers=$!"), by_signal(), _function(agents), (_HEADING, *part("agent.sh"))
    )


def one_by_one(agents: Agents, reach: list[str]) -> AgentsScript:
    """``reach`` are the lines of a function that starts ``$RUN/agent-$1.sh`` on node ``$1``."""
    function = ("reach() { # NODE", *(f"  {line}" for line in reach), "}")
    return AgentsScript(
        (f"write_agent_scripts {'to-log' if agents.whole_job else 'to-logs'}", "fan_out &", "workers=$!"),
        by_signal(),
        _function(agents),
        (*_scripts(agents), *function, *part("each.sh")),
    )


def all_at_once(agents: Agents, command: list[str]) -> AgentsScript:
    """``command`` starts one process per line of ``$RUN/hosts``, and brings back what they print."""
    return AgentsScript(
        ("write_agent_scripts to-stdout", *command, "workers=$!"),
        by_signal(),
        _function(agents),
        tuple(_scripts(agents)),
    )


def by_signal() -> tuple[str, ...]:
    """TERM to what has started the agents reaches them."""
    return tuple(part("end_by_signal.sh"))


def by_scancel(*, whole_job: bool) -> tuple[str, ...]:
    """TERM by SLURM's own means: to the whole job, or to the step of the agents alone."""
    return tuple(part("end_by_scancel.sh" if whole_job else "end_step.sh"))


def part(name: str) -> list[str]:
    return files("rankup.node_launchers").joinpath(name).read_text().rstrip("\n").split("\n")


_HEADING = "# ---- The agents ".ljust(118, "-")


def _function(agents: Agents) -> tuple[str, ...]:
    called = ("# On each node:", "# shellcheck disable=SC2317,SC2329 # it is called by another shell")
    return (*called, "agent() {", *(f"  {line}" for line in agents.agent), "}")


def _scripts(agents: Agents) -> list[str]:
    own = [
        "# What a node has of its own, such as the GPUs that a hook of PBS has given it, or this script alone.",
        f"own_names() {{ echo '{'|'.join(name for name in OWN if name not in agents.given)}'; }}",
    ]
    return [_HEADING, *part("agent.sh"), *own, *part("agents.sh")]
