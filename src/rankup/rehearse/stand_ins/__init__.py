"""Stand-ins for a cluster's commands. Each runs as a process of its own, with the standard library alone.

| module | what |
|---|---|
| ``main`` | command → stand-in; the wrappers that stand on PATH |
| ``context`` | what a stand-in knows of its place: host, scenario, log |
| ``on_host`` | runs a command as a process of another host |
| ``holding`` | a step that trains keeps its nodes until the script is quiet |
| ``standard_input`` | standard input, as srun and ssh take it from a script |
| ``srun`` | srun |
| ``slurm_tools`` | scontrol, squeue, sbatch, … |
| ``python`` | python, torchrun and their like: recorded, or run if they are helpers |
"""
