"""What failures look like, as literal data: a table for each origin.

| module | what |
|---|---|
| ``signature`` | ``Signature`` and ``Level``: how much an event explains |
| ``rendezvous`` | how ranks find each other: torchrun's rendezvous, torch's store |
| ``collectives`` | gloo, barriers, and what torchrun and mp.spawn say when a rank has failed |
| ``nccl`` | NCCL and CUDA, through torch or by themselves. Most errors of NCCL follow from the end of another rank |
| ``models`` | torch about models, losses and gradients |
| ``files`` | torch about snapshots and data sets |
| ``loaders`` | torch about loader workers, spawned processes and the memory of the host |
| ``slurm`` | SLURM in a job's log |
| ``slurm_submit`` | sbatch, srun and salloc when they do not take what they are asked for |
| ``pbs`` | PBS (OpenPBS, PBS Professional, Torque) in a job's log, qsub, and mpiexec |
| ``python`` | python itself. An exception without a signature is an event as well |
| ``system`` | the shell and the operating system |
| ``match`` | the signature of a text |
"""
