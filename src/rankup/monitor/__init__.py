"""What a node's processors do while a job runs: ``python -m rankup.monitor RUN_DIR [PARENT]`` samples them, and
``rankup top`` shows them with what the ranks tell.

Writing:

| module | what |
|---|---|
| ``counters`` | CPU, memory and network of this node |
| ``limits`` | what can run out: the job's memory, the disk of the run directory |
| ``gpus`` | the job's GPUs on this node, from NVML |
| ``samples_file`` | the file of this host in the run's records |
| ``sampler`` | one sample a second, until the job ends |
| ``stacks`` | stacks of all ranks by py-spy, on request |

Reading:

| module | what |
|---|---|
| ``series`` | the records of ranks and nodes in memory, for a quarter of an hour |
| ``nvidia_smi`` | the log of nvidia-smi as samples, where no sampler of ours ran |
| ``reader`` | reads what was added to the records |
| ``rows`` | what each rank and node does now, in numbers |
| ``alerts`` | what is wrong: pure functions of the records over time |
| ``frame`` | one moment of a run, of all these |

A sampler stands beside a training, so it imports little: no torch, no pydantic, not even ``pathlib``.
"""
