"""Runs a job script on a pretended cluster, and tells what would have been started where."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rankup.core import shell
from rankup.errors import RankupError
from rankup.rehearse import log, pbs_env, sandbox
from rankup.rehearse.allocation import Allocation
from rankup.rehearse.copying import copy_folder
from rankup.rehearse.scenario import Scenario
from rankup.rehearse.slurm_env import batch_environment
from rankup.rehearse.stand_ins.context import HOST
from rankup.rehearse.stand_ins.main import RUN_FOR_REAL, commands, wrapper, write_wrappers

_LOGIN = ("HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TERM", "TZ")  # what a new login has
_MOST_ROUNDS = 6
#: What a shell or srun says of a file that is not there.
_MISSING = re.compile(
    r"(?:: line (?P<line>\d+): (?:(?P<cd>cd): |(?:source|\.): )?|: \d+: (?P<dash>cd: can't cd to )|^(?:\d+: )?"
    r"(?:[\w/]*sh: (?:0: cannot open )?|slurmstepd: error: execve\(\): ))(?P<path>[^:\n]+)"
    r"(?(dash)|: (?:No such file(?: or directory)?|file not found))$",
    re.M,
)
#: What other commands say of a file by its absolute path: it is pretended as well.
_MISSING_ELSEWHERE = re.compile(
    r"[ :'‘](?P<path>/[^:'’\n]+)['’]?(?: for reading)?: (?:Cannot open: )?No such file or", re.M
)
#: In which files that a script wrote its messages stand: it has sent them there by ``exec >file 2>&1``.
_MESSAGES = (re.compile(r"^\S+: line \d+: ", re.M), _MISSING, _MISSING_ELSEWHERE)

MOST_PROCESSES = 1500  # of a rehearsal; with more of them everything is ended


@dataclass
class Rehearsal:
    """What happened: the events of the log, the script's output, and how it ended."""

    scenario: Scenario
    events: list[dict[str, Any]]
    output: str
    code: int | None = None
    ended_by: str = "itself"  # itself, timeout, processes, error
    changed: list[str] = field(default_factory=list)
    pretended: list[str] = field(default_factory=list)  # paths that are not on this machine
    left_out: list[str] = field(default_factory=list)  # of the copy of the job's folder
    seconds: float = 0.0
    seconds_allowed: float = 0.0
    overlaid: bool = True

    def not_found(self) -> Iterator[re.Match[str]]:
        """The script's messages of files that are not there: ``path``, and where it is known ``line``."""
        return _MISSING.finditer(self.output)


@dataclass(frozen=True)
class Options:
    """How to rehearse."""

    slurm_version: tuple[int, int] = (23, 11)
    mpi: str = ""  # who answers to mpirun and mpiexec; "": whose options they get
    seconds: float = 60.0
    job_seconds: int = 3600
    for_real: bool = False
    confined: bool = True
    arguments: tuple[str, ...] = ()
    overlay: bool = True
    output: str = ""  # where the script's output goes; "": into the scratch directory
    writable: tuple[str, ...] = ()  # folders in which what is written stays
    grace: float = 0.0  # seconds between SIGTERM and SIGKILL for what the script has left; 0: no SIGTERM


def submit_folder(script: Path) -> Path:
    """Where one would submit ``script``."""
    here = Path.cwd()
    return here if script.absolute().is_relative_to(here) else script.absolute().parent


def rehearse(script: Path, allocation: Allocation, options: Options, env: Mapping[str, str]) -> Rehearsal:
    """Rehearse ``script`` on ``allocation``. What the script names and this machine lacks is pretended, in a new round.

    Raises ``RankupError``: ``script-not-found``, ``not-a-script``, ``bad-script``, ``no-sandbox``.
    """
    script, folder = script.absolute(), submit_folder(script)
    text = _read(script, allocation.scheduler)
    if options.confined:
        why = sandbox.available()
        if _is_hidden(script.resolve()):
            why = f"{script.parent} is not seen in a sandbox"
        if why:
            raise RankupError(
                "no-sandbox",
                "this machine does not let a user make a sandbox, so the script could change files",
                context=why,
                hint="read the script, then --unconfined runs it with the stand-ins alone, on a copy of its folder",
            )
    pretended: dict[str, str] = {}
    for round_number in range(_MOST_ROUNDS):
        done = _once(folder, text, allocation, options, env, pretended)
        missing = _elsewhere(done) if options.confined and done.overlaid else {}
        missing = {path: kind for path, kind in missing.items() if path not in pretended}
        if not missing or round_number == _MOST_ROUNDS - 1:
            done.pretended = sorted(pretended)
            return done
        pretended |= missing
    raise AssertionError


def _read(script: Path, scheduler: str) -> str:
    try:
        text = script.read_bytes().decode(errors="replace")
    except OSError as error:
        raise RankupError("script-not-found", f"cannot read {script}: {error.strerror}") from None
    if script.suffix == ".toml":
        raise RankupError(
            "not-a-script",
            f"{script.name} is a job file, and rehearse runs a job script",
            hint=f"rankup render {script.name} > {script.stem}.sh, then rankup rehearse {script.stem}.sh",
        )
    if not text.startswith("#!") and scheduler == "slurm":  # PBS takes the user's shell
        raise RankupError(
            "bad-script",
            f"{script.name} does not begin with #!",
            hint="write #!/bin/bash as its first line: sbatch refuses it",
        )
    if "\r\n" in text:
        raise RankupError(
            "bad-script",
            f"{script.name} has the line ends of DOS",
            hint="run dos2unix; sbatch and qsub refuse such a script",
        )
    return text


def _elsewhere(done: Rehearsal) -> dict[str, str]:
    """Absolute paths that were not found → ``folder`` or ``file``: on the cluster they may be there."""
    found = {}
    for match in done.not_found():
        path = os.path.normpath(match["path"])
        if path.startswith("/") and not Path(path).exists():
            found[path] = "folder" if match["cd"] or match["dash"] else "file"
    for match in _MISSING_ELSEWHERE.finditer(done.output):
        if not Path(match["path"]).exists():
            found.setdefault(os.path.normpath(match["path"]), "file")
    return found


def _is_hidden(path: Path) -> bool:
    """Whether a sandbox has something of its own there."""
    return path.is_relative_to("/") and path.parts[1:2] in (("dev",), ("run",), ("proc",), ("sys",))


@contextmanager
def scratch_folder() -> Iterator[Path]:
    hidden = _is_hidden(Path(tempfile.gettempdir()).resolve())
    folder = Path(tempfile.mkdtemp(prefix="rankup-rehearse-", dir="/var/tmp" if hidden else None))
    try:
        yield folder.resolve()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _once(
    folder: Path,
    text: str,
    allocation: Allocation,
    options: Options,
    env: Mapping[str, str],
    pretended: Mapping[str, str],
) -> Rehearsal:
    with scratch_folder() as scratch:
        scenario = Scenario(
            scratch=scratch, folder=folder, allocation=allocation, slurm_version=options.slurm_version,
            mpi=options.mpi, time=options.job_seconds, started=time.time(), for_real=options.for_real,
            confined=options.confined, python=sys.executable, source=str(Path(__file__).parents[2]),
            user=env.get("USER", "user"), home=env.get("HOME", "/root"),
            in_tmp=tuple(map(str, Path("/tmp").iterdir())),
        )  # fmt: skip
        left_out: list[str] = []
        if not options.confined:
            left_out = copy_folder(scenario.folder, scratch / "copy")
            scenario = replace(scenario, folder=scratch / "copy")
        prepare(scenario, text, options, env, pretended, left_out)
        began = time.monotonic()
        error = _run(scratch, options.seconds + 20, confined=options.confined)
        rehearsal = Rehearsal(
            scenario,
            log.read(scenario.log),
            _text(scratch / "output.txt"),
            seconds=time.monotonic() - began,
            seconds_allowed=options.seconds,
        )
        try:
            result = json.loads((scratch / "result.json").read_text())
        except (OSError, ValueError):
            raise RankupError(
                "sandbox-failed", "the sandbox could not be made", context=_text(scratch / "sandbox-error") or error,
                hint="--unconfined runs the script with the stand-ins alone, on a copy of its folder", exit_code=1,
            ) from None  # fmt: skip
        rehearsal.code, rehearsal.ended_by = result["code"], result["ended_by"]
        rehearsal.changed, rehearsal.overlaid = result["changed"], result["overlaid"]
        rehearsal.left_out = result.get("left_out", [])
        for written in result.get("written", ()):
            if any(message.search(written) for message in _MESSAGES):
                rehearsal.output += written
        return rehearsal


def prepare(
    scenario: Scenario,
    text: str,
    options: Options,
    env: Mapping[str, str],
    pretended: Mapping[str, str],
    left_out: Sequence[str] = (),
) -> None:
    """Write all that ``start`` needs into the scenario's scratch directory."""
    _write_tools(scenario)
    plan = _plan(scenario, text, options, env, pretended)
    plan |= {"left_out": left_out, "confined": options.confined}
    plan |= {"writable": options.writable, "grace": options.grace}
    (scenario.scratch / "plan.json").write_text(json.dumps(plan))


def start(scratch: Path, *, confined: bool = True) -> shell.Process[bytes]:
    """Run the script. The process ends with it, and with that process all that the script has started."""
    module, main = ("sandbox", "main") if confined else ("supervision", "main_unconfined")
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r}); "
        f"from rankup.rehearse.{module} import {main} as main; sys.exit(main(sys.argv[1]))"
    )
    with (scratch / "sandbox.err").open("wb") as err:
        return shell.start(
            [sys.executable, "-I", "-S", "-B", "-c", code, str(scratch / "plan.json")],
            stdin=shell.DEVNULL, stdout=err, stderr=err, new_session=True, die_with_parent=True,
        )  # fmt: skip


def _run(scratch: Path, seconds: float, *, confined: bool) -> str:
    process = start(scratch, confined=confined)
    deadline = time.monotonic() + seconds
    try:
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    return _text(scratch / "sandbox.err")[-500:]


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(4 << 20).decode(errors="replace")
    except OSError:
        return ""


def _write_tools(scenario: Scenario) -> None:
    scenario.save()
    write_wrappers(scenario)
    inside = Path(__file__).parent / "inside"
    hook = scenario.scratch / "hook"
    hook.mkdir()
    shutil.copy(inside / "sitecustomize.py", hook)
    stubs = scenario.scratch / "stubs"
    stubs.mkdir()
    shutil.copy(inside / "torch.py", stubs)
    functions = (inside / "shell_functions.sh").read_text()
    functions = functions.replace("@bin@", str(scenario.bin)).replace("@hook@", str(hook))
    (scenario.scratch / "functions.sh").write_text(functions)


def _plan(
    scenario: Scenario, text: str, options: Options, env: Mapping[str, str], pretended: Mapping[str, str]
) -> dict[str, Any]:
    job = scenario.allocation
    hidden = ("SLURM_", "SBATCH_", "PBS_", "RANKUP_", "PYTEST_", "OMPI_", "PMI", "SRUN_", "TORCHELASTIC")
    kept = {name: value for name, value in env.items() if not name.startswith(hidden)}
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    if job.scheduler == "slurm":
        spool = f"/var/spool/slurmd/job{int(job.job_id):05}/slurm_script"
        cwd, batch = str(scenario.folder), batch_environment(scenario)
        if job.export_none:
            kept = {name: value for name, value in kept.items() if name in _LOGIN}
    else:
        spool = f"/var/spool/pbs/mom_priv/jobs/{pbs_env.job_id(scenario)}.SC"
        cwd, batch = scenario.home, pbs_env.batch_environment(scenario, env)
        if re.search(r"^#PBS\s+(?:.*\s)?-l\s*(?:\S+,)?wd\b", text, re.M):
            cwd, batch = str(scenario.folder), batch | pbs_env.of_nci(scenario)
        if not re.search(r"^#PBS\s+(?:.*\s)?-V\b", text, re.M):
            kept = {name: value for name, value in kept.items() if name in _LOGIN}
        files[str(pbs_env.node_file(scenario))] = pbs_env.node_file_text(scenario)
        folders[batch["TMPDIR"]] = ""
    files[spool] = text
    instead = {}
    for number, path in enumerate(files):
        other = scenario.scratch / f"file{number}"
        other.write_text(files[path])
        instead[path] = str(other)
    given = {**kept, **batch, **scenario.variables}
    own = {
        **given,
        "PATH": f"{scenario.bin}:{env.get('PATH', '/usr/local/bin:/usr/bin:/bin')}",
        "PYTHONPATH": ":".join(filter(None, [str(scenario.scratch / "hook"), given.get("PYTHONPATH", "")])),
        "BASH_ENV": str(scenario.scratch / "functions.sh"),
        HOST: job.hosts[0],
    }
    known = set(commands(scenario))
    if scenario.confined:
        files |= {path: wrapper(scenario, name) for name in known for path in _installed(name, own["PATH"])}
        # A login shell of another kind than bash reads no BASH_ENV, and takes its PATH from here.
        files["/etc/profile"] = f'{_text(Path("/etc/profile"))}\nPATH="{scenario.bin}:$PATH"; export PATH\n'
    for path, kind in pretended.items():
        if kind == "file":
            name = Path(path).name
            # Whether it is sourced, run or written to: it does nothing, and works.
            files[path] = wrapper(scenario, name) if name in known else "#!/bin/sh\n:\n"
    return {
        "scratch": str(scenario.scratch),
        "folder": str(scenario.folder),
        "copy": str(scenario.scratch / "copy"),
        "no_overlay": not options.overlay,
        "seconds": options.seconds,
        "most_processes": MOST_PROCESSES,
        "host": job.hosts[0],
        "hosts": {host: job.address(host) for host in job.hosts},
        "argv": [*_interpreter(text), spool, *options.arguments],
        "env": own,
        "cwd": cwd,
        "output": options.output or str(scenario.scratch / "output.txt"),
        "log": str(scenario.log),
        "files": files,
        "instead": instead,
        "links": folders
        | {path: str(scenario.folder) for path, kind in pretended.items() if kind == "folder"},
    }


def _installed(name: str, path: str) -> Iterator[str]:
    """Where the real command lies: it is replaced too, for scripts that call it by its path. Python is caught else."""
    if name.startswith(("python", "ipython")) or name in RUN_FOR_REAL:  # the stand-ins start these
        return
    for folder in {*path.split(os.pathsep), "/usr/local/bin", "/usr/bin", "/bin"}:
        candidate = Path(folder, name)
        # ``exists`` raises for a folder that this user may not search.
        if "rankup-rehearse-" not in folder and os.access(candidate, os.F_OK):
            yield str(candidate)


def _interpreter(text: str) -> list[str]:
    """The tokens of a script's first line; a login shell for a script without one."""
    first = text.partition("\n")[0]
    return (first[2:].strip().split(None, 1) if first.startswith("#!") else []) or ["/bin/bash"]
