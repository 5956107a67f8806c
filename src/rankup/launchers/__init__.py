"""Launchers: who forms the ranks. ``--launcher NAME`` is the file NAME.

In reading order: ``base`` (what is to be started, and bash that launchers share), then one file each: ``single``,
``torchrun``, ``srun``, ``mpirun``.

``LAUNCHERS`` start one node's ranks here and now, each a pure function from a ``JobSpec`` to tokens; ``SCRIPTED`` start
all ranks from a job's script, each a pure function from a ``Start`` to bash.
"""

from __future__ import annotations

LAUNCHERS = {
    "single": "rankup.launchers.single:tokens",
    "torchrun": "rankup.launchers.torchrun:tokens",
}
SCRIPTED = {
    "single": "rankup.launchers.single:lines",
    "torchrun": "rankup.launchers.torchrun:agent",
    "srun": "rankup.launchers.srun:lines",
    "mpirun": "rankup.launchers.mpirun:lines",
}
