"""Node launchers: who starts one agent on each node of an allocation. ``--fanout NAME`` is the file NAME.

In reading order: ``base`` (what is to be started), ``agents`` (bash that all of them share, and what ``auto`` is), then
one file each: ``srun`` for SLURM; ``pbsdsh``, ``pbs_tmrsh``, ``ssh``, ``mpiexec`` and ``pals`` (the mpiexec of a Cray)
for PBS; ``local`` for a job of one node.
"""

from __future__ import annotations

# Each is a pure function from an ``Agents`` to bash, for a job's script and for `rankup run` inside an allocation.
NODE_LAUNCHERS = {
    "srun": "rankup.node_launchers.srun:start",
    "pbsdsh": "rankup.node_launchers.pbsdsh:start",
    "pbs_tmrsh": "rankup.node_launchers.pbs_tmrsh:start",
    "ssh": "rankup.node_launchers.ssh:start",
    "mpiexec": "rankup.node_launchers.mpiexec:start",
    "pals": "rankup.node_launchers.pals:start",
    "local": "rankup.node_launchers.local:start",
}
