"""A scheduler that this process pretends, for ``rankup drill --here`` where no real one is installed.

It answers to the commands of SLURM or PBS that change a queue: from the drill, and from jobs. What its jobs write into
the drill's folder stays; what they write elsewhere is gone with their sandbox.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rankup.check.document import Document
from rankup.check.facts.job.directives import SUBMIT
from rankup.check.facts.job.reader import read_job
from rankup.core import shell
from rankup.core.files import write_atomic
from rankup.core.shell import Completed, quote
from rankup.core.units import clock, parse_clock
from rankup.drill.copied_job import after_directives
from rankup.drill.pretended_job import (
    CANCELLED,
    COMPLETED,
    OVER,
    PENDING,
    RUNNING,
    TIMEOUT,
    PretendedJob,
    signal_number,
)
from rankup.drill.queue import FIVE_MINUTES_S
from rankup.errors import RankupError
from rankup.launch_grammar.reader import read_text
from rankup.rehearse.rehearse import scratch_folder
from rankup.rehearse.request import Sizes, allocation_of
from rankup.rehearse.scenario import Scenario
from rankup.rehearse.stand_ins.main import write_wrappers
from rankup.schedulers.submit_environment import clean_environment

_POLL_S = 0.05
_SUBMITS = {"sbatch": "#SBATCH", "qsub": "#PBS"}
_PBS_STATES = {PENDING: "Q", RUNNING: "R"}
_AT_LIMIT = -29  # PBS's Exit_status
_WELL = Completed(0, "", "")
_UNKNOWN = Completed(127, "", "a pretended scheduler does not know this command\n")


class PretendedScheduler:
    """``kind``: slurm or pbs; ``state``: a folder for it alone."""

    def __init__(self, kind: str, state: Path) -> None:
        self.state, self._kind, self._asked = state, kind, state / "asked"
        self._jobs: dict[str, PretendedJob] = {}
        self._lock, self._over = threading.RLock(), threading.Event()
        self._error: BaseException | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        self._asked.mkdir()
        login = Scenario(self.state / "login", self.state, queue=str(self._asked), python=sys.executable,
                         source=str(Path(__file__).parents[2]))  # fmt: skip
        login.scratch.mkdir()
        login.save()
        write_wrappers(login)
        thread = threading.Thread(target=self._work)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def lost(self, path: Path) -> bool:
        """Whether a job has written a file that is gone."""
        return any(str(path) in job.changed for job in self._jobs.values())

    def ask(self, tokens: Sequence[str], folder: Path | None = None) -> Completed:
        """As on a login node."""
        if self._error is not None:
            raise self._error
        env = clean_environment(os.environ)
        if tokens[0] in _SUBMITS or tokens[0] in _COMMANDS:
            return self._command(tokens, folder or Path("/"), env)
        env["PATH"] = f"{self.state / 'login' / 'bin'}:{env.get('PATH', os.defpath)}"
        return shell.run(tokens, env=env, cwd=folder, timeout=FIVE_MINUTES_S)

    # ------------------------------------------------------------------ commands

    def _command(self, tokens: Sequence[str], folder: Path, env: Mapping[str, str]) -> Completed:
        name, *words = tokens
        with self._lock:
            try:
                if name in _SUBMITS:
                    return self._submit(name, words, folder, env)
                return _COMMANDS[name](self, words)
            except KeyError as error:
                return Completed(1, "", f"{name}: there is no job {error}\n")
            except (RankupError, OSError, ValueError) as error:
                return Completed(1, "", f"{name}: {error}\n")

    def _submit(self, name: str, words: list[str], folder: Path, env: Mapping[str, str]) -> Completed:
        submitted = read_text(SUBMIT[self._kind], words)
        count = len(words) - len(submitted.rest)
        options, rest = words[:count], words[count:]
        if not rest:
            return Completed(1, "", f"{name}: a pretended scheduler takes scripts alone\n")
        text = (folder / rest[0]).read_text(errors="surrogateescape")
        text = after_directives(text, f"{_SUBMITS[name]} {quote(options)}\n") if options else text
        request = read_job(Document(rest[0], text)).request
        allocation, limit, _ = allocation_of(request, Sizes(), Path(rest[0]).name)
        number = str(len(self._jobs) + 1)
        allocation = replace(allocation, job_id=number)
        job = PretendedJob(number, text, folder, tuple(rest[1:]), env, request, allocation, limit)
        self._jobs[number] = job
        short = name == "qsub" or "--parsable" in options
        return Completed(0, f"{job.id}\n" if short else f"Submitted batch job {job.id}\n", "")

    def _squeue(self, words: list[str]) -> Completed:
        """With ``--format``, as the drill asks."""
        form = next((word.partition("=")[2] for word in words if word.startswith("--format=")), "")
        lines = ""
        for job in self._waiting_or_running():
            line = (
                form.replace("%i", job.id).replace("%T", job.state).replace("%r", self._waits(job) or "None")
            )
            lines += line.replace("%N", "").replace("%Z", str(job.folder)) + "\n"
        return Completed(0, lines, "")

    def _qstat(self, words: list[str]) -> Completed:
        """With ``-f``: of a job, or of all."""
        named = [self._job(word) for word in words if word[:1].isdigit()]
        shown = {}
        for job in named or self._waiting_or_running():
            state = "H" if self._waits(job) else _PBS_STATES.get(job.state, "F")
            status = _AT_LIMIT if job.state == TIMEOUT else job.code if job.code >= 0 else 256 - job.code
            shown[job.id] = {
                "job_state": state,
                "Job_Owner": f"{getpass.getuser()}@head",
                "Variable_List": {"PBS_O_WORKDIR": str(job.folder)},
                "run_count": job.restarts + 1,
                "Resource_List": {"walltime": clock(job.limit)},
                **({"Exit_status": status} if state == "F" else {}),
            }
        return Completed(0, json.dumps({"Jobs": shown}), "")

    def _scontrol(self, words: list[str]) -> Completed:
        plain = [word for word in words if not word.startswith("-")]
        if plain[:1] == ["requeue"]:
            return self._requeue(plain[1:])
        values = dict(word.partition("=")[::2] for word in plain[1:])
        if plain[:1] == ["update"] and "TimeLimit" in values:
            self._job(values["JobId"]).limit = parse_clock(values["TimeLimit"]) or 0
            return _WELL
        if plain[:2] == ["show", "job"] and "--oneliner" in words:
            job = self._job(plain[2])
            code = f"{job.code}:0" if job.code >= 0 else f"0:{-job.code}"
            said = f"JobId={job.id} JobState={job.state} Restarts={job.restarts} ExitCode={code}"
            return Completed(0, f"{said} TimeLimit={clock(job.limit, days=True)}\n", "")
        return _UNKNOWN

    def _requeue(self, words: list[str]) -> Completed:
        """Also qrerun."""
        for job in map(self._job, words):
            if job.state != RUNNING or not job.may_requeue:
                return Completed(1, "", f"job {job.id} does not run, or may not be requeued\n")
            job.end(PENDING)
        return _WELL

    def _signal(self, words: list[str]) -> Completed:
        """scancel, qdel and qsig: jobs are ended, or get a signal."""
        line = " ".join(words)
        found = re.search(r"(?:--signal[= ]|-s\s*)(\w+)", line)
        full = self._kind == "pbs" or re.search(r"(^| )(-f|--full)\b", line)
        to = "batch" if re.search(r"(^| )(-b|--batch)\b", line) else "all" if full else "steps"
        for job in [self._job(word) for word in words if re.match(r"\d+(\.\w+)?$", word)]:
            if found is not None:
                job.send(signal_number(found[1]), to=to)
            elif job.state == PENDING:
                job.state = CANCELLED
            elif job.state == RUNNING:
                job.end(CANCELLED)
        return _WELL

    def _qalter(self, words: list[str]) -> Completed:
        found = re.search(r"walltime=([\d:]+)", " ".join(words))
        if found is None:
            return _UNKNOWN
        self._job(words[-1]).limit = parse_clock(found[1]) or 0
        return _WELL

    def _job(self, name: str) -> PretendedJob:
        return self._jobs[name.partition(".")[0]]

    def _waiting_or_running(self) -> list[PretendedJob]:
        return [job for job in self._jobs.values() if job.state not in OVER]

    # ------------------------------------------------------------------ what happens by itself

    def _work(self) -> None:
        try:
            while not self._over.wait(_POLL_S):
                self._answer()
                with self._lock:
                    for job in self._waiting_or_running():
                        if job.state == PENDING and not self._waits(job):
                            job.begin(self.state, self._asked)
                        job.attend()
        except BaseException as error:
            self._error = error
        finally:
            for job in self._jobs.values():
                job.kill()

    def _answer(self) -> None:
        """What jobs ask; looks at the queue are left to the stand-ins."""
        for path in sorted(self._asked.glob("*.asked")):
            asked = json.loads(path.read_text())
            path.unlink()
            name = asked["argv"][0]
            known = name in _SUBMITS or (name in _COMMANDS and name not in ("squeue", "qstat"))
            done = self._command(asked["argv"], Path(asked["folder"]), asked["env"]) if known else _UNKNOWN
            answer = [None, "", ""] if done is _UNKNOWN else [done.code, done.out, done.err]
            write_atomic(path.with_suffix(".answer"), json.dumps(answer))

    def _waits(self, job: PretendedJob) -> str:
        """Why it does not begin; "" if it can."""
        if job.state != PENDING:
            return ""
        named = [job.request.get(name) for name in ("dependency", "W")]
        text = " ".join(directive.value for directive in named if directive is not None)
        for kind, ids in re.findall(r"(after\w*):([\w.:]+)", text):
            for other in [self._jobs[each.partition(".")[0]] for each in ids.split(":")]:
                if other.state not in OVER and not (kind == "after" and other.state == RUNNING):
                    return "Dependency"
                if kind in ("afterok", "afternotok") and (other.state == COMPLETED) != (kind == "afterok"):
                    return "DependencyNeverSatisfied"
        older = (each for each in self._waiting_or_running() if int(each.number) < int(job.number))
        return "Dependency" if "singleton" in text and any(each.name == job.name for each in older) else ""


_COMMANDS: dict[str, Callable[[PretendedScheduler, list[str]], Completed]] = {
    "squeue": PretendedScheduler._squeue,
    "scontrol": PretendedScheduler._scontrol,
    "scancel": PretendedScheduler._signal,
    "qstat": PretendedScheduler._qstat,
    "qdel": PretendedScheduler._signal,
    "qsig": PretendedScheduler._signal,
    "qrerun": PretendedScheduler._requeue,
    "qalter": PretendedScheduler._qalter,
}


@contextmanager
def pretended_scheduler(kind: str) -> Iterator[PretendedScheduler]:
    with scratch_folder() as state:
        scheduler = PretendedScheduler(kind, state)
        with scheduler.running():
            yield scheduler
