"""Which process this is: ``World``, read from the environment by pure functions; one small file per launcher.

| module | what |
|---|---|
| ``world`` | ``World``: rank, world size, hosts, launcher; the job; kinds of devices; how variables are read |
| ``detection`` | the order in which launchers are tried; the first that is found wins |
| ``torchrun`` | torchrun (TorchElastic) |
| ``slurm`` | SLURM: the job, and the step of ``srun`` |
| ``openmpi`` | Open MPI's mpirun |
| ``pals`` | PALS, the mpiexec of HPE Cray machines |
| ``mvapich`` | MVAPICH2's mpirun_rsh and mpiexec |
| ``hydra`` | Hydra, the mpiexec of MPICH and Intel MPI |
| ``mpi`` | finds the node of a process, for launchers that only number processes |
| ``pbs`` | PBS: the job, and the agents that ``pbsdsh`` starts |
| ``env`` | RANK and WORLD_SIZE set by hand |
| ``address`` | addresses: the one that routes to a peer, its network interface, and where ranks meet |
| ``ports`` | a free port, held until its user has ended |
| ``devices`` | the GPUs and CPUs of this process, without torch |
"""

from __future__ import annotations

from rankup.world.world import ACCELERATORS, BACKENDS, SchedulerJob, World

__all__ = ["ACCELERATORS", "BACKENDS", "SchedulerJob", "World"]
