"""SLURM, from version 20 on.

| module | what |
|---|---|
| ``commands`` | sbatch, squeue, sacct, scontrol, scancel, salloc: the command lines |
| ``directives`` | what a job requests, as options of sbatch and salloc |
| ``limits`` | what a partition grants at most |
| ``start_estimate`` | when a job would start |
| ``answers`` | the output of squeue, sacct and scontrol, read into ``JobStatus`` |
| ``states`` | SLURM's states and reasons in our words |
| ``errors`` | the errors of SLURM, each with the flag to change |
"""
