"""What a node's processors do while a job runs: ``python -m rankup.monitor RUN_DIR [PARENT]`` samples them.

| module | what |
|---|---|
| ``counters`` | CPU, memory and network of this node |
| ``gpus`` | the job's GPUs on this node, from NVML |
| ``samples_file`` | the file of this host in the run's records |
| ``sampler`` | one sample a second, until the job ends |

A sampler stands beside a training, so it imports little: no torch, no pydantic, not even ``pathlib``.
"""
