"""Schedulers: who gives nodes to jobs. They return commands and read answers, and never run anything.

| module | what |
|---|---|
| ``base`` | ``Scheduler``: what each of them can be asked; ``JobStatus`` |
| ``slurm`` | SLURM |
| ``pbs`` | OpenPBS and PBS Pro |
| ``local`` | this machine, without a scheduler |
| ``submit_environment`` | the environment of a submit from inside a job |
| ``queue_limits`` | requests that no queue ever grants |
| ``error_table`` | from a scheduler's error to one sentence that names the flag to change |
| ``experimental`` | Torque: tested with recorded answers alone |
"""

from __future__ import annotations

SCHEDULERS = {
    "slurm": "rankup.schedulers.slurm.commands:Slurm",
    "pbs": "rankup.schedulers.pbs.commands:Pbs",
    "torque": "rankup.schedulers.experimental.torque:Torque",
    "local": "rankup.schedulers.local.commands:Local",
    "run": "rankup.schedulers.local.commands:Foreground",  # no site's: of runs that were not submitted
}
