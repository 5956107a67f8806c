"""Strategies for workloads, and to compare with. They serve no plain script.

| module | what |
|---|---|
| ``tp`` | tensor parallelism |
| ``pp`` | pipeline parallelism |
| ``dp`` | threads and replicas in one process |
| ``deepspeed`` | DeepSpeed's engine, ZeRO stage 1 |
"""
