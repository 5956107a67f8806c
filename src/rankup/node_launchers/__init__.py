"""Fan-out: how one agent per node of an allocation is started. Each is a pure function from a ``Plan`` to commands."""

from __future__ import annotations

FANOUTS = {
    "srun": "rankup.node_launchers.srun:commands",
    "pbsdsh": "rankup.node_launchers.pbsdsh:commands",
    "mpiexec": "rankup.node_launchers.mpiexec:commands",
    "pals": "rankup.node_launchers.pals:commands",
}
