"""What failures look like: a table in TOML for each origin, and what reads them.

| file | what |
|---|---|
| ``slurm.toml`` | SLURM in a job's log |
| ``slurm_submit.toml`` | sbatch, srun and salloc when they do not take what they are asked for |
| ``pbs.toml`` | PBS (OpenPBS, PBS Professional, Torque, Moab) in a job's log, qsub |
| ``mpi.toml`` | mpirun and mpiexec, and the interface (PMI) between MPI and its launcher |
| ``nccl.toml`` | NCCL and CUDA, through torch or by themselves |
| ``rendezvous.toml`` | how ranks find each other: torchrun's rendezvous, torch's store |
| ``collectives.toml`` | gloo, barriers, and what torchrun and mp.spawn say when a rank has failed |
| ``models.toml`` | torch and frameworks about models, losses and gradients |
| ``files.toml`` | torch about snapshots and data sets |
| ``loaders.toml`` | torch about loader workers, spawned processes and the memory of the host |
| ``python.toml`` | python itself. An exception without a signature is an event as well |
| ``system.toml`` | the shell and the operating system |
| ``signature`` | ``Signature`` and ``Level``: how much an event explains |
| ``tables`` | reads the tables, and refuses what is not in their schema |
| ``match`` | the signature of a text |
"""
