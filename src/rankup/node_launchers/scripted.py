"""Fan-out in a job's script: bash that starts one agent per node, whatever the agent is.

The script around it knows HOSTS (first seen first, so that the head is number 0) and RUN; ``agent`` are lines of bash
in which NODE_RANK is the node's. srun brings the script's environment to the nodes; for everything else a script per
node does (``agents.sh``), and ``reach`` is what starts such a script on its node.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from importlib.resources import files

from rankup.core import shell
from rankup.errors import RankupError
from rankup.node_launchers.base import OWN

_REACH = {
    # pbsdsh counts the lines of the node file, not hosts; and it ends with 0 whatever its task did.
    "pbsdsh": (
        """  exec pbsdsh -n "$(awk -v host="${HOSTS[$1]}" '$0 == host { print NR - 1; exit }' "$PBS_NODEFILE")" \\""",
        """    -- bash "$RUN/agent-$1.sh\"""",
    ),
    # pbs_tmrsh is PBS's own: unlike those of ssh, its processes are PBS's to count and to end.
    "pbs_tmrsh": ("""  exec pbs_tmrsh "${HOSTS[$1]}" bash "$RUN/agent-$1.sh\"""",),
    # With a terminal (-tt) the agent hears of it when ssh is gone.
    "ssh": (
        """  exec ssh -tt -o BatchMode=yes "${HOSTS[$1]}" "bash $(printf %q "$RUN/agent-$1.sh")" </dev/null""",
    ),
}
# Open MPI's, and PALS's (Cray), which rejects the former's options.
_MPIEXEC = {
    "openmpi": (
        'mpiexec --hostfile "$RUN/hosts" -np "${#HOSTS[@]}" --map-by ppr:1:node --bind-to none -x RUN \\',
        "  bash -c 'exec bash \"$RUN/agent-$OMPI_COMM_WORLD_RANK.sh\"' &",
    ),
    "pals": (
        'mpiexec -n "${#HOSTS[@]}" --ppn 1 --hostfile "$RUN/hosts" --cpu-bind none --envall \\',
        "  bash -c 'exec bash \"$RUN/agent-$PALS_RANKID.sh\"' &",
    ),
}


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


def lines(
    fanout: str,
    agent: Sequence[str],
    *,
    nodes: int,
    cpus: int | None,
    given: Collection[str],
    mpi: str,
) -> list[str]:
    """Bash that starts ``agent`` on all ``nodes`` in the background; ``cpus`` are a node's, where known.

    ``given`` are the variables that the user has set for all nodes; ``mpi`` says whose mpiexec it is.
    """
    if fanout == "srun":
        return _srun(agent, nodes, cpus)
    function = ["agent() {", *(f"  {line}" for line in agent), "}"]
    called = ["# shellcheck disable=SC2317,SC2329 # it is called by another shell", *function]
    if nodes == 1:
        return [*called, *_part("agent.sh"), "start_agent", "workers=$!"]
    own = [
        "# What a node has of its own, such as the GPUs that a hook of PBS has given it, or this script alone.",
        f"OWN='{'|'.join(name for name in OWN if name not in given)}'",
    ]
    scripts = [*called, *_part("agent.sh"), *own, *_part("agents.sh")]
    if fanout == "mpiexec":
        # It brings back what its processes print, as the others do not.
        scripts = [line.replace(" >>%q 2>&1", "").replace(' "$RUN/logs/node-$i.log"', "") for line in scripts]
        hosts = 'printf "%s\\n" "${HOSTS[@]}" >"$RUN/hosts"'
        return [*scripts, hosts, *_MPIEXEC[mpi], "workers=$!"]
    return [*scripts, "reach() {", *_REACH[fanout], "}", *_part("each.sh"), "fan_out &", "workers=$!"]


def _srun(agent: Sequence[str], nodes: int, cpus: int | None) -> list[str]:
    options = [f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1"]
    options += [f"--cpus-per-task={cpus}"] if cpus else []  # since 22.05 srun does not take it from the job
    options += ["--cpu-bind=none", "--kill-on-bad-exit=1", "--mpi=none"]
    own = ["NODE_RANK=$SLURM_NODEID"] if nodes > 1 else []
    script = "\n  ".join(["", *own, *agent])
    return [
        "# One agent per node; each starts the ranks of its node. The single quotes matter: here, outside of srun,",
        "# SLURM_NODEID is 0 for everyone.",
        f"srun {' '.join(options)} \\\n  bash -c {shell.quote([script])} &",
        "workers=$!",
    ]


def _part(name: str) -> list[str]:
    return files("rankup.node_launchers").joinpath(name).read_text().rstrip("\n").split("\n")
