"""Fan-out: how one agent per node of an allocation is started. Each is a pure function from a ``Plan`` to commands."""

from __future__ import annotations

FANOUTS = {
    "srun": "rankup.fanout.srun:commands",
    "pbsdsh": "rankup.fanout.pbsdsh:commands",
    "mpiexec": "rankup.fanout.mpiexec:commands",
    "pals": "rankup.fanout.pals:commands",
}
