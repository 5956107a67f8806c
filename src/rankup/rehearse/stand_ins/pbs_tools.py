"""``qstat``, ``qsub`` and their like: what a job script asks PBS."""

from __future__ import annotations

import time

from rankup.core.units import clock
from rankup.rehearse import pbs_env
from rankup.rehearse.stand_ins.context import Here


def main(here: Here) -> int:
    if (code := here.ask_scheduler()) is not None:
        return code
    line = " ".join([here.name, *here.args])[:200]
    if here.name == "qstat":
        if "-f" in here.args:
            print(_full(here))
        else:
            number = pbs_env.job_id(here.scenario)
            print(f"{number}  {here.job.job_name}  {here.scenario.user}  00:00:00 R {here.job.partition}")
        return 0
    if here.name == "qsub":
        here.note(f"{line}: submits another job; noted, not done")
        print("4712.head")
        return 0
    if here.name == "pbsnodes":
        for host in here.job.hosts:
            print(f"{host}\n     Mom = {host}\n     state = job-busy")
        return 0
    here.note(f"{line}: noted, not done")
    return 0


def _full(here: Here) -> str:
    job = here.job
    hosts = "+".join(f"{host}/0" for host in job.hosts)
    return (
        f"Job Id: {pbs_env.job_id(here.scenario)}\n    Job_Name = {job.job_name}\n    job_state = R\n"
        f"    queue = {job.partition}\n"
        f"    exec_host = {hosts}\n    Resource_List.walltime = {clock(here.scenario.time)}\n"
        f"    stime = {time.ctime(here.scenario.started)}\n"
    )
