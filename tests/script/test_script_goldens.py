"""Golden scripts: for each site, each shape of job that it is made for, and each launcher that it allows.

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
from typing import Any

import pytest

from rankup.resolve.resolve import resolve
from rankup.script.render import render
from rankup.sites.lookup import find_site

GOLDENS = Path(__file__).parent.parent / "goldens" / "scripts"
FOLDER, RUN = Path("/work/user/project"), Path("/work/user/project/runs/train/20260101-120000-abcd")
COMMAND = ("train.py", "--lr", "0.1", "--note", "it's $HOME")
ACCOUNT = {"olivia": "nn9999k", "sockeye": "st-user-1-gpu", "alliance": "def-user"}
# What a user of the site gives besides the shape, from what its centre's pages show.
USUAL: dict[str, dict[str, Any]] = {
    "cyclone": {"time": "24h"},
    "eap": {"time": "1h", "venv": "$HOME/venvs/torch"},
    "olivia": {"time": "1h"},
    "sockeye": {"time": "24h", "venv": "/arc/project/user/venv", "mail": "user@example.org", "mem": "186G"},
    "alliance": {"time": "24h", "venv": "$HOME/venv", "mail": "user@example.org"},
    "della": {"time": "1h"},
}
CPUS = {"sockeye": 6, "alliance": 10}


def shapes(gpus: int) -> dict[str, dict[str, Any]]:
    return {
        "cpu": {"nodes": 1, "gpus_per_node": 0},
        "one-gpu": {"nodes": 1, "gpus_per_node": 1},
        "one-node": {"nodes": 1, "gpus_per_node": gpus},
        "two-nodes": {"nodes": 2, "gpus_per_node": gpus},
    }


def cases() -> dict[str, tuple[str, dict[str, Any]]]:
    """File name → (site, flags)."""
    made: dict[str, tuple[str, dict[str, Any]]] = {}
    for name, usual in USUAL.items():
        site = find_site(name, {}, Path("/"))
        if name in ACCOUNT:
            usual = {**usual, "account": ACCOUNT[name]}
        for shape, sizes in shapes(site.node.gpus).items():
            if sizes["gpus_per_node"] and name in CPUS:
                sizes = {**sizes, "cpus_per_task": CPUS[name]}
            if name == "cyclone" and shape == "cpu":
                sizes = {**sizes, "venv": "$HOME/venv"}  # its modules are for jobs with GPUs
            for launcher in site.launchers:
                made[f"{name}-{shape}-{launcher}"] = (name, {**usual, **sizes, "launcher": launcher})
    two = {"nodes": 2, "gpus_per_node": 4, "time": "1h", "python": "python"}
    eap = {**USUAL["eap"], "nodes": 2, "gpus_per_node": 4}
    return made | {
        "eap-fanout-mpiexec": ("eap", {**eap, "fanout": "mpiexec"}),
        "eap-fanout-pbs_tmrsh": ("eap", {**eap, "fanout": "pbs_tmrsh"}),
        "eap-fanout-ssh": ("eap", {**eap, "fanout": "ssh"}),
        "slurm-elastic": ("slurm", {**two, "max_restarts": 2, "sample_gpus": 10, "nccl_debug": True}),
        "slurm-array": (
            "slurm",
            {**two, "array": "0-9%2", "env": {"FOO": "a 'b' $c"}, "pre": ("ulimit -c 0",)},
        ),
        "slurm-conda-directive": (
            "slurm",
            {**two, "conda": "torch-env", "directives": ("--reservation=course",), "exclusive": True},
        ),
        "slurm-preflight": ("slurm", {**two, "preflight": True}),
        "slurm-program": (
            "slurm",
            {"command": ("./simulate", "x"), "nproc_per_node": 2, "launcher": "torchrun", "python": "python"},
        ),
        "pbs-array": ("pbs", {**two, "array": "1-4"}),
        "pbs-two-processes": ("pbs", {"nproc_per_node": 2, "time": "1h", "python": "python"}),
        "local-two": ("local", {"nproc_per_node": 2, "python": "python", "time": "1h"}),
        "local-one": ("local", {"python": "python"}),
    }


CASES = cases()


def script(name: str, tmp_path: Path, run: Path | None) -> str:
    site, flags = CASES[name]
    flags = dict(flags)
    command = flags.pop("command", COMMAND)
    for program in ("train.py", "simulate"):
        (tmp_path / program).touch(mode=0o755)
    resolved = resolve(
        flags, command=command, file=None, site=site, env={"HOME": "/home/user"}, folder=tmp_path
    )
    return render(
        resolved.spec.model_copy(update={"folder": FOLDER, "runs_root": Path("runs")}), resolved.site, run
    )


HEADING = "# The same in every job"
FOLLOWS = "# The functions of "
# One for each scheduler, launcher and node launcher, on one node and on two.
WHOLE = (
    *("alliance-one-node-torchrun", "alliance-two-nodes-mpirun", "della-two-nodes-srun", "slurm-elastic"),
    *("olivia-one-node-torchrun", "slurm-program", "eap-one-node-torchrun", "eap-two-nodes-torchrun"),
    *("eap-fanout-mpiexec", "eap-fanout-pbs_tmrsh", "eap-fanout-ssh", "sockeye-one-node-mpirun"),
    *("sockeye-two-nodes-mpirun", "pbs-array", "pbs-two-processes", "local-one", "local-two"),
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
    assert script(name, tmp_path, RUN) == golden(name)


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


# shellcheck needs half a second for each. The first screens of the others are read without what they call.
LINTED_BY_HAND = ["slurm-array", "pbs-array", "eap-two-nodes-torchrun", "della-two-nodes-srun", "local-two"]


@pytest.mark.parametrize("by_hand", [False, True], ids=["submitted", "by-hand"])
def test_bash_reads_every_script_and_shellcheck_finds_nothing(tmp_path: Path, by_hand: bool):
    paths = []
    for name in CASES:
        path = tmp_path / f"{name}.sh"
        path.write_text(script(name, tmp_path, None if by_hand else RUN))
        if name in (LINTED_BY_HAND if by_hand else WHOLE):
            paths.append(str(path))
        done = subprocess.run(["bash", "-n", path], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), name
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run(["shellcheck", "--format=gcc", *paths], capture_output=True, text=True)
    assert done.stdout == ""
    screens = []
    for name in CASES:
        path = tmp_path / f"{name}-screen.sh"
        path.write_text((tmp_path / f"{name}.sh").read_text().partition(HEADING)[0])
        screens.append(str(path))
    # Variables and functions that only the rest of a script sets or uses.
    called = "--exclude=SC2034,SC2153,SC2154,SC2317,SC2329"
    done = subprocess.run(["shellcheck", "--format=gcc", called, *screens], capture_output=True, text=True)
    assert done.stdout == ""


@pytest.mark.parametrize(
    "name", [name for name, (site, _) in CASES.items() if site in ("pbs", "eap", "sockeye")]
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
    "name", [name for name, (site, _) in CASES.items() if site not in ("pbs", "eap", "sockeye", "local")]
)
def test_sbatch_directives_stand_before_any_command(tmp_path: Path, name: str):
    lines = script(name, tmp_path, RUN).splitlines()
    last = max(i for i, line in enumerate(lines) if line.startswith("#SBATCH"))
    assert all(re.fullmatch(r"#SBATCH --[a-z-]+(=\S+)?", line) for line in lines[1 : last + 1])
    # Per node, never per task: a rank that sees one GPU alone has no fast way to its neighbours'.
    assert not any("per-task" in line and "gpu" in line for line in lines)
