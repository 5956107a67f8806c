"""``scontrol``, ``squeue``, ``sbatch`` and their like: what a job script asks SLURM."""

from __future__ import annotations

import re
import sys
import time

from rankup.core.hostlist import compress, expand
from rankup.core.units import clock
from rankup.errors import RankupError
from rankup.rehearse.stand_ins.context import Here


def main(here: Here) -> int:
    if (code := here.ask_scheduler()) is not None:
        return code
    if here.name == "scontrol":
        return _scontrol(here)
    if here.name == "squeue":
        return _squeue(here)
    if here.name == "sbcast":
        here.note(f"{_line(here)}: copies a file to all nodes; noted, not done")
        return 0
    if here.name == "sinfo":
        print(f"{here.job.partition}* up infinite {here.job.num_nodes} alloc {compress(here.job.hosts)}")
        return 0
    if here.name == "sbatch":
        here.note(f"{_line(here)}: submits another job; noted, not done")
        print("4712" if "--parsable" in here.args else "Submitted batch job 4712")
        return 0
    here.note(f"{_line(here)}: noted, not done")
    return 0


def _line(here: Here) -> str:
    return " ".join([here.name, *here.args])


def _scontrol(here: Here) -> int:
    words = [word for word in here.args if not word.startswith("-")]
    what = words[:2]
    if what[:1] == ["show"] and len(what) == 2:
        if "hostnames".startswith(what[1]) and len(what[1]) >= 5:
            # Without a list it shows SLURM_JOB_NODELIST's; `hostname` is short for `hostnames`.
            lists = words[2:] or [here.env.get("SLURM_JOB_NODELIST", "")]
            try:
                hosts = [host for text in lists for host in expand(text)]
            except RankupError:
                here.fail("Invalid hostlist: " + " ".join(lists))
            if not hosts:
                here.fail("SLURM_JOB_NODELIST is not set: no hosts")
            print("\n".join(hosts))
            return 0
        if what[1].startswith("hostlist"):
            text = words[2] if len(words) > 2 else ""
            print(compress(expand(",".join(text.split(",")))))
            return 0
        if what[1].startswith("job"):
            _show_job(here)
            return 0
        if what[1].startswith("node"):
            for host in expand(words[2]) if len(words) > 2 else here.job.hosts:
                address = here.job.address(host)
                print(
                    f"NodeName={host} Arch=x86_64\n   NodeAddr={address} NodeHostName={host}\n   State=ALLOCATED"
                )
            return 0
        if what[1].startswith("config"):
            print("SLURM_VERSION = {}.{:02}.0".format(*here.scenario.slurm_version))
            return 0
    here.note(f"{_line(here)}: noted, not done")
    return 0


def _show_job(here: Here) -> None:
    job, times = here.job, here.scenario
    start, end = (_date(times.started), _date(times.started + times.time))
    print(
        f"JobId={job.job_id} JobName={job.job_name}\n"
        f"   JobState=RUNNING Reason=None Dependency=(null)\n"
        f"   Requeue=1 Restarts={times.restarts} BatchFlag=1 Reboot=0 ExitCode=0:0\n"
        f"   RunTime=00:00:00 TimeLimit={clock(times.time, days=True)} TimeMin=N/A\n"
        f"   StartTime={start} EndTime={end} Deadline=N/A\n"
        f"   Partition={job.partition} AllocNode:Sid=login:0\n"
        f"   NodeList={compress(job.hosts)}\n   BatchHost={job.hosts[0]}\n"
        f"   NumNodes={job.num_nodes} NumCPUs={sum(job.cpus)} NumTasks={sum(job.tasks_per_node())}\n"
        f"   Command={here.scenario.folder}/job.sh\n   WorkDir={here.scenario.folder}"
    )


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(seconds))


def _squeue(here: Here) -> int:
    job, times = here.job, here.scenario
    left = clock(max(0, int(times.started + times.time - time.time())), days=True)
    values = {
        "i": job.job_id, "A": job.job_id, "e": _date(times.started + times.time), "S": _date(times.started),
        "N": compress(job.hosts), "R": compress(job.hosts), "D": str(job.num_nodes), "L": left, "T": "RUNNING",
        "t": "R", "l": clock(times.time, days=True), "j": job.job_name, "P": job.partition, "u": times.user,
        "M": "0:01",
        "C": str(sum(job.cpus)), "B": job.hosts[0],
    }  # fmt: skip
    form = _option(here.args, "o", "format")
    if form is None:
        form = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
    if not {"-h", "--noheader"} & {*here.args} and not any(
        re.fullmatch("-[a-zA-Z]*h[a-zA-Z]*", a) for a in here.args
    ):
        print(form.replace("%", ""))
    unknown = sorted({letter for letter in re.findall(r"%[.\d-]*([a-zA-Z])", form) if letter not in values})
    if unknown:
        here.note(
            f"{_line(here)}: the rehearsal does not know {', '.join('%' + one for one in unknown)}", "unknown"
        )
    print(re.sub(r"%[.\d-]*([a-zA-Z])", lambda match: values.get(match[1], ""), form))
    sys.stdout.flush()
    return 0


def _option(args: list[str], short: str, long: str) -> str | None:
    for index, word in enumerate(args):
        if word in (f"-{short}", f"--{long}"):
            return args[index + 1] if index + 1 < len(args) else None
        if word.startswith(f"--{long}="):
            return word.partition("=")[2]
        if re.match(rf"-[a-zA-Z]*{short}.+", word) and not word.startswith("--"):
            return word[word.index(short) + 1 :]
    return None
