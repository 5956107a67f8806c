"""A copy of a job for one failure: its folder, and its script with a few lines that have each attempt recorded."""

from __future__ import annotations

import fnmatch
import re
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankup.core.shell import quote
from rankup.errors import RankupError

_STARTUP = Path(__file__).parents[1] / "runtime" / "tracing" / "startup"  # its sitecustomize.py records
_LINKED_FROM = 32 << 20  # bytes of a file that is not copied
_LEFT_OUT = ("__pycache__", ".git", ".venv", "venv", "node_modules", "wandb")
_SIGNAL = re.compile(r"^#SBATCH\s+--signal[= ](?P<value>\S+).*$", re.M)
USUAL_LEAD_S = 60  # SLURM's, for a --signal without @SECONDS

# In the job's script, after its directives. It must do no harm under `set -eu`, and in any shell of Bourne's kind.
_RECORD = """\
# Added by rankup drill: each attempt of this job is recorded in a folder of its own.
rankup_attempts={attempts} rankup_n=1
until mkdir "$rankup_attempts/$rankup_n" 2>/dev/null || [ "$rankup_n" -ge 100 ]; do rankup_n=$((rankup_n + 1)); done
RANKUP_TRACE=$rankup_attempts/$rankup_n
RANKUP_TRACE_REFERENCE={reference}
for rankup_folder in "$rankup_attempts"/*/; do
  RANKUP_TRACE_REFERENCE="$RANKUP_TRACE_REFERENCE
${{rankup_folder%/}}"
done
PYTHONPATH={startup}${{PYTHONPATH:+:$PYTHONPATH}}
export PYTHONPATH RANKUP_TRACE RANKUP_TRACE_REFERENCE {written}
unset RANKUP_DRILL # a job that submits the next one hands on its environment
if [ "$rankup_n" -eq 1 ]; then export {first}; fi
echo "${{SLURM_JOB_ID:-${{PBS_JOBID:-}}}} $(date +%s)" >"$RANKUP_TRACE/job"
if [ -n "${{PBS_JOBID:-}}" ]; then # what PBS starts on other nodes has the job's variables, and not this shell's
  env -0 | grep -z -E '^RANKUP_(TRACE|DRILL|WRITTEN)' >"$rankup_attempts/$PBS_JOBID.env"
fi
unset rankup_attempts rankup_n rankup_folder
# End of what rankup drill has added.
"""


@dataclass(frozen=True)
class JobScript:
    """The user's script, in its own folder."""

    path: Path
    text: str

    @property
    def folder(self) -> Path:
        return self.path.parent

    @property
    def scheduler(self) -> str:
        """By its directives: slurm, pbs, or "" for neither."""
        found = re.search(r"^#(SBATCH|PBS)\s", self.text, re.M)
        return {"SBATCH": "slurm", "PBS": "pbs"}[found[1]] if found else ""

    @property
    def lead(self) -> int | None:
        """How many seconds before its time limit SLURM sends a signal; None for a script that asks for none."""
        found = _SIGNAL.search(self.text)
        if found is None:
            return None
        seconds = found["value"].rpartition("@")[2]
        return int(seconds) if "@" in found["value"] and seconds.isdigit() else USUAL_LEAD_S

    @property
    def destination(self) -> list[str]:
        """Its directives that say who pays and where it runs."""
        names = r"(-A|-p|-q|--account|--partition|--qos|--reservation|--clusters|-M)\b"
        return re.findall(rf"^#(?:SBATCH|PBS)\s+{names}.*$".replace("(-A", "(?:-A"), self.text, re.M)

    def line_of(self, pattern: str) -> int | None:
        """The number of the first line in which ``pattern`` is found."""
        lines = enumerate(self.text.splitlines(), start=1)
        return next((number for number, line in lines if re.search(pattern, line)), None)


def read_script(path: Path) -> JobScript:
    """Raises ``RankupError`` for what no drill can use."""
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise RankupError("script-not-found", f"cannot read {path}: {error}") from None
    first = text.partition("\n")[0]
    if not re.match(r"#!.*\b(ba|da|k|z)?sh\b", first):
        raise RankupError(
            "bad-script",
            f"a drill is for shell scripts, and {path.name} begins with {first[:40]!r}",
            hint="its first line must be #!/bin/bash; csh and Python are not understood",
        )
    return JobScript(path.resolve(), text)


@dataclass(frozen=True)
class JobCopy:
    """``folder`` is the copy that is submitted, ``attempts`` gets the traces; both lie in the failure's folder."""

    home: Path
    script: Path

    @property
    def folder(self) -> Path:
        return self.home / "job"

    @property
    def variables(self) -> str:
        """Of a PBS job itself, for processes on other nodes, which do not have those of its script."""
        return f"PYTHONPATH={_STARTUP},RANKUP_ATTEMPTS={self.attempts}"

    @property
    def attempts(self) -> Path:
        return self.home / "attempts"


def copy_job(
    job: JobScript,
    home: Path,
    *,
    reference: Path | None,
    inside: str,
    written: Path | None = None,
    without_signal: bool = False,
    leave_out: Sequence[str] = (),
) -> JobCopy:
    """Copy the job to ``home``. ``reference``: the trace of the uninterrupted run; ``inside``: what happens in the
    processes of the first attempt; ``written``: where they note which files they write."""
    made = JobCopy(home, home / "job" / job.path.name)
    made.attempts.mkdir(mode=0o700, parents=True)
    _copy_folder(job.folder, made.folder, {home.parents[1]}, leave_out)
    lines = _RECORD.format(
        attempts=quote([str(made.attempts)]),
        reference=quote([str(reference)]) if reference is not None else '""',
        startup=quote([str(_STARTUP)]),
        first=quote([f"RANKUP_DRILL={inside}"]),
        written=quote([f"RANKUP_WRITTEN={written}"]) if written is not None else "",
    )
    for script in {made.script, *made.folder.glob("*.sh")}:
        text = script.read_bytes().decode(errors="surrogateescape")
        text = _with_variables(_moved(text, job.folder, made.folder), made.variables)
        if script == made.script:
            text = _SIGNAL.sub("# rankup drill has taken --signal out", text) if without_signal else text
            text = after_directives(text, lines)
        script.write_bytes(text.encode(errors="surrogateescape"))
    return made


def _copy_folder(source: Path, target: Path, never: Collection[Path], leave_out: Sequence[str]) -> None:
    """Large files become links to the originals."""

    def skip(folder: str, names: list[str]) -> list[str]:
        inside = Path(folder).relative_to(source)
        return [
            name
            for name in names
            if name in _LEFT_OUT
            or Path(folder, name) in never
            or any(fnmatch.fnmatch(str(inside / name), pattern) for pattern in leave_out)
        ]

    def copy(one: str, other: str) -> None:
        if Path(one).stat().st_size > _LINKED_FROM:
            Path(other).symlink_to(Path(one).resolve())
        else:
            shutil.copy2(one, other)

    try:
        shutil.copytree(source, target, symlinks=True, ignore=skip, copy_function=copy)
    except (shutil.Error, OSError) as error:
        raise RankupError(
            "cannot-copy",
            f"the job's folder {source} cannot be copied",
            context=str(error)[-300:],
            hint="keep the job's script in a folder with its program alone; --leave-out GLOB leaves files out",
            exit_code=1,
        ) from None


def _moved(text: str, folder: Path, other: Path) -> str:
    """The script may name its own folder: by its path, or from the home directory."""
    names = [str(folder)]
    if folder.is_relative_to(Path.home()) and folder != Path.home():
        inside = folder.relative_to(Path.home())
        names += [f"{home}/{inside}" for home in ("$HOME", "${HOME}", "~")]
    pattern = "|".join(re.escape(name) for name in names)
    return re.sub(rf"(?<![\w.])(?:{pattern})(?![\w.-])", lambda _: str(other), text)


def _with_variables(text: str, variables: str) -> str:
    """The last ``-v`` counts, so there must be one."""
    own = re.compile(r"^(#PBS\s+(?:.*\s)?-v\s*)(\S.*)$", re.M)
    if own.search(text):
        return own.sub(lambda found: f"{found[1]}{found[2].rstrip()},{variables}", text)
    return re.sub(r"^#PBS\b", lambda found: f"#PBS -v {variables}\n{found[0]}", text, count=1, flags=re.M)


def after_directives(text: str, added: str) -> str:
    """Schedulers read directives up to the first command."""
    lines = text.splitlines(keepends=True)
    for number, line in enumerate(lines):
        if line.strip() and not line.startswith("#"):
            return "".join([*lines[:number], added, *lines[number:]])
    return text + added
