"""Golden scripts: those of the jobs in ``goldens/jobs.py``.

A script is its first screen, which is of its job, and functions, which are the same in many jobs. They are kept once,
in the whole scripts of ``WHOLE``; the last line of another golden file names the script whose functions follow.

``RANKUP_WRITE_GOLDENS=1 pytest tests/script/test_script_goldens.py`` writes them anew: read the diff before you
keep it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from generated import check_generated
from goldens.jobs import CASES, COMMAND, RUN, script
from rankup.resolve.precedence import resolve
from rankup.script.render import render

GOLDENS = Path(__file__).parent.parent / "goldens" / "scripts"
HEADING = "# The same in every job"
FOLLOWS = "# The functions of "
# One for each scheduler, launcher and node launcher, on one GPU, one node and two, and in a container.
WHOLE = (
    *("alliance-one-node-torchrun", "alliance-two-nodes-mpirun", "della-two-nodes-srun", "slurm-elastic"),
    *("olivia-one-node-torchrun", "slurm-program", "eap-one-node-torchrun", "eap-two-nodes-torchrun"),
    *("eap-fanout-mpiexec", "eap-fanout-pbs_tmrsh", "eap-fanout-ssh", "sockeye-one-node-mpirun"),
    *("cyclone-cpu-torchrun", "olivia-two-nodes-torchrun"),
    *("alliance-one-node-mpirun", "della-one-node-srun", "cyclone-cpu-srun"),
    *("sockeye-two-nodes-mpirun", "pbs-array", "pbs-two-processes", "local-one", "local-two"),
    *("slurm-stage", "pbs-stage", "slurm-singularity"),
    *("alliance-one-gpu-torchrun", "alliance-one-gpu-mpirun", "della-one-gpu-srun"),
    *("eap-one-gpu-torchrun", "sockeye-one-gpu-mpirun"),
)


def functions(text: str) -> str:
    return text.partition(HEADING)[2]


def write_golden(name: str, tmp_path: Path) -> None:
    made = script(name, tmp_path, RUN)
    same = [other for other in WHOLE if functions(script(other, tmp_path, RUN)) == functions(made)]
    if name not in WHOLE and same:
        made = f"{made.partition(HEADING)[0]}{FOLLOWS}{same[0]}.sh\n"
    (GOLDENS / f"{name}.sh").write_text(made)


def golden(name: str) -> str:
    text = (GOLDENS / f"{name}.sh").read_text()
    screen, follows, other = text.partition(FOLLOWS)
    return screen + HEADING + functions((GOLDENS / other.strip()).read_text()) if follows else text


@pytest.mark.parametrize("name", CASES)
def test_a_script_is_the_golden_one(tmp_path: Path, name: str):
    if os.environ.get("RANKUP_WRITE_GOLDENS"):
        write_golden(name, tmp_path)
    command = f"RANKUP_WRITE_GOLDENS=1 pytest tests/script/test_script_goldens.py -k {name}"
    check_generated(golden(name), script(name, tmp_path, RUN), f"tests/goldens/scripts/{name}.sh", command)


def test_the_sites_mpi_is_loaded_where_the_job_names_none(tmp_path: Path):
    def load(*modules: str) -> str:
        flags = {"nodes": 2, "account": "a", "modules": modules, "launcher": "mpirun"}
        (tmp_path / "train.py").touch()
        job = resolve(flags, command=COMMAND, file=None, site="sockeye", env={}, folder=tmp_path)
        lines = render(job.spec, job.site, RUN).splitlines()
        return next(line.strip() for line in lines if line.strip().startswith("module load"))

    assert load("gcc").startswith("module load gcc openmpi ||")
    assert load("openmpi/4.1.1", "gcc").startswith("module load openmpi/4.1.1 gcc ||")


def test_no_golden_file_is_left_over():
    assert sorted(path.stem for path in GOLDENS.glob("*.sh")) == sorted(CASES)


# shellcheck needs a second for each. The first screens of the others are read without what they call.
LINTED = (
    "alliance-two-nodes-mpirun",
    "slurm-elastic",
    "pbs-array",
    "eap-fanout-ssh",
    "local-two",
    "slurm-stage",
    "pbs-stage",
)
LINTED_BY_HAND = ("slurm-array", "eap-two-nodes-torchrun")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("by_hand", "linted"),
    [
        pytest.param(False, LINTED, id="submitted"),
        pytest.param(True, LINTED_BY_HAND, id="by-hand"),
        pytest.param(False, WHOLE, id="submitted, all", marks=pytest.mark.campaign),
    ],
)
def test_bash_reads_every_script_and_shellcheck_finds_nothing(
    tmp_path: Path, by_hand: bool, linted: tuple[str, ...]
):
    paths = []
    for name in CASES:
        path = tmp_path / f"{name}.sh"
        path.write_text(script(name, tmp_path, None if by_hand else RUN))
        if name in linted:
            paths.append(str(path))
        done = subprocess.run(["bash", "-n", path], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), name
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run(["shellcheck", "--format=gcc", *paths], capture_output=True, text=True)
    assert done.stdout == ""
    screens = []
    for name in {*CASES} - {*linted} if not by_hand else {*CASES} & {*linted}:
        path = tmp_path / f"{name}-screen.sh"
        path.write_text((tmp_path / f"{name}.sh").read_text().partition(HEADING)[0])
        screens.append(str(path))
    # Variables and functions that only the rest of a script sets or uses.
    called = "--exclude=SC2034,SC2153,SC2154,SC2317,SC2329"
    done = subprocess.run(["shellcheck", "--format=gcc", called, *screens], capture_output=True, text=True)
    assert done.stdout == ""


@pytest.mark.parametrize(
    "name", [name for name, (site, _) in CASES.items() if site in ("pbs", "eap", "sockeye", "aurora")]
)
def test_directives_are_what_qsub_accepts(tmp_path: Path, name: str):
    """No CR, no trailing comment, nothing quoted: qsub hands each word on as it is."""
    text = script(name, tmp_path, RUN)
    assert "\r" not in text
    lines = text.splitlines()
    last = max(i for i, line in enumerate(lines) if line.startswith("#PBS"))
    assert all(line.startswith("#") for line in lines[:last])  # qsub stops reading at the first command
    for line in lines[1 : last + 1]:
        assert re.fullmatch(r"#PBS -[A-Za-z] [^\s#'\"]+", line), line


@pytest.mark.parametrize(
    "name",
    [name for name, (site, _) in CASES.items() if site not in ("pbs", "eap", "sockeye", "aurora", "local")],
)
def test_sbatch_directives_stand_before_any_command(tmp_path: Path, name: str):
    lines = script(name, tmp_path, RUN).splitlines()
    last = max(i for i, line in enumerate(lines) if line.startswith("#SBATCH"))
    assert all(re.fullmatch(r"#SBATCH --[a-z-]+(=\S+)?", line) for line in lines[1 : last + 1])
    # Per node, never per task: a rank that sees one GPU alone has no fast way to its neighbours'.
    assert not any("per-task" in line and "gpu" in line for line in lines)
