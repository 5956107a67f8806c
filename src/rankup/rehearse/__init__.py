"""Rehearsal: a job script, anybody's, run on a pretended cluster without a queue, up to the training program.

| module | what |
|---|---|
| ``report`` | a job script and sizes → ``Report``: what ``rankup rehearse`` prints |
| ``request`` | a job's directives and a cluster's sizes → ``Allocation`` |
| ``allocation`` | ``Allocation``: the nodes that the job has got, and what it asked for |
| ``scenario`` | ``Scenario``: the pretended cluster, as a file for the stand-ins |
| ``log`` | what the stand-ins saw |
| ``slurm_env`` | SLURM's variables of the batch shell and of a step's tasks |
| ``pbs_env`` | PBS's variables of a job's shell and of what pbsdsh starts; the node file |
| ``srun_options`` | srun's command line and input variables |
| ``step_plan`` | where the tasks of an srun run |
| ``mpi_options`` | mpirun's command line, and where its ranks run |
| ``programs`` | what a Python command line starts |
| ``stand_ins`` | the commands of a cluster |
| ``copying`` | a copy of the job's folder |
| ``system_calls`` | system calls that Python does not have |
| ``mounts`` | what a sandbox mounts: the file system that it shows |
| ``supervision`` | starts a command, and ends it with all that it has started |
| ``sandbox`` | runs a command where it can change nothing |
| ``rehearse`` | script and allocation → ``Rehearsal`` |
| ``launch_options`` | options of torchrun and its like → ``Agent`` |
| ``written_down`` | what a program writes down: its world size, its device |
| ``processes`` | the log → ``Launch``es and their ``Process``es |
| ``judge`` | launches → findings |
| ``table`` | launches as text |
"""
