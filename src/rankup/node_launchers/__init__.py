"""Node launchers: who starts one agent on each node of an allocation. ``--fanout NAME`` is the file NAME.

In reading order: ``base`` (what is to be started), ``agents`` (bash that all of them share, and what ``auto`` is), then
one file each: ``srun`` for SLURM; ``pbsdsh``, ``pbs_tmrsh``, ``ssh``, ``mpiexec`` and ``pals`` (the mpiexec of a Cray)
for PBS; ``local`` for a job of one node.
"""

from __future__ import annotations

# What starts the agents of a job's script: a pure function from an ``Agents`` to bash.
SCRIPTED = {
    "srun": "rankup.node_launchers.srun:start",
    "pbsdsh": "rankup.node_launchers.pbsdsh:start",
    "pbs_tmrsh": "rankup.node_launchers.pbs_tmrsh:start",
    "ssh": "rankup.node_launchers.ssh:start",
    "mpiexec": "rankup.node_launchers.mpiexec:start",
    "pals": "rankup.node_launchers.pals:start",
    "local": "rankup.node_launchers.local:start",
}
# What starts those of `rankup run` inside an allocation: a pure function from an ``AgentLaunch`` to commands.
FANOUTS = {
    "srun": "rankup.node_launchers.srun:commands",
    "pbsdsh": "rankup.node_launchers.pbsdsh:commands",
    "mpiexec": "rankup.node_launchers.mpiexec:commands",
    "pals": "rankup.node_launchers.pals:commands",
}
