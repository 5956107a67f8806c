"""The copy of a job that a failure strikes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rankup.drill.copied_job import copy_job, read_script
from rankup.errors import RankupError

SCRIPT = """\
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --signal=B:USR1@120

# A comment of the user's
#SBATCH --partition=long
set -eu
OUT=${OUT:-{folder}/out}
cd {folder}
echo "first $PYTHONPATH $OUT" >said
"""


def job(folder: Path, text: str = SCRIPT) -> Path:
    folder.mkdir()
    path = folder / "job.sh"
    path.write_text(text.replace("{folder}", str(folder)))
    return path


def test_the_lines_that_record_stand_behind_the_directives_and_do_no_harm(tmp_path: Path):
    script = read_script(job(tmp_path / "project"))
    made = copy_job(script, tmp_path / "drill" / "one", reference=Path("/ref erence"), inside="pace 3 *")
    text = made.script.read_text()
    assert text.index("--partition=long") < text.index("# Added by rankup drill") < text.index("set -eu")
    for attempt in (1, 2):
        done = subprocess.run(
            ["bash", "-eu", made.script], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"}
        )
        assert done.returncode == 0, done.stderr
        assert (made.attempts / str(attempt) / "job").exists()
    assert "tracing/startup" in (made.folder / "said").read_text()
    assert f"{made.folder}/out" in (made.folder / "said").read_text()
    assert not (script.folder / "said").exists()  # the script's own path was the copy's


def test_only_the_first_attempt_is_told_what_happens_in_it(tmp_path: Path):
    script = read_script(
        job(tmp_path / "project", '#!/bin/sh\necho "$RANKUP_TRACE ${RANKUP_DRILL:-nothing}"\n')
    )
    made = copy_job(script, tmp_path / "drill" / "one", reference=None, inside="die 3 1;pace 3 *")

    def run(**inherited: str) -> str:
        env = {"PATH": "/usr/bin:/bin", **inherited}
        done = subprocess.run(["sh", made.script], capture_output=True, text=True, check=True, env=env)
        return done.stdout.strip()

    assert run() == f"{made.attempts}/1 die 3 1;pace 3 *"
    # A job that was submitted by the first one has its environment.
    assert run(RANKUP_DRILL="die 3 1;pace 3 *") == f"{made.attempts}/2 nothing"


def test_a_signal_is_taken_out_where_the_limit_comes_unannounced(tmp_path: Path):
    script = read_script(job(tmp_path / "project"))
    assert script.lead == 120
    made = copy_job(script, tmp_path / "drill" / "one", reference=None, inside="", without_signal=True)
    assert "USR1" not in made.script.read_text() and "#SBATCH --nodes=2" in made.script.read_text()


def test_what_is_left_out_and_earlier_drills_are_not_copied(tmp_path: Path):
    script = read_script(job(tmp_path / "project"))
    home = script.folder / "runs" / "drill-job" / "now"
    (home.parent / "before").mkdir(parents=True)
    (script.folder / "out").mkdir()
    (script.folder / "out" / "last.pt").touch()
    made = copy_job(script, home / "one", reference=None, inside="", leave_out=["out/*.pt"])
    kept = {str(path.relative_to(made.folder)) for path in made.folder.rglob("*")}
    assert kept == {"job.sh", "out", "runs"}


def test_a_job_of_pbs_has_the_variables_of_its_own_and_those_that_record(tmp_path: Path):
    for number, own in enumerate(("", "#PBS -v A=1,B=2\n", "#PBS -N x -v A=1\n")):
        text = f"#!/bin/bash\n#PBS -l select=1\n{own}echo hello\n"
        made = copy_job(read_script(job(tmp_path / f"p{number}", text)), tmp_path / f"d{number}" / "one" / "x",
                        reference=None, inside="")  # fmt: skip
        lines = [
            line for line in made.script.read_text().splitlines() if line.startswith("#PBS") and "-v" in line
        ]
        assert len(lines) == 1 and "RANKUP_ATTEMPTS=" in lines[0], lines
        assert not own or "-v A=1," in lines[0]


@pytest.mark.parametrize("first", ["#!/bin/csh", "#!/usr/bin/env python3", "echo 1"])
def test_a_script_that_is_no_shell_script_of_bournes_kind_is_refused(tmp_path: Path, first: str):
    with pytest.raises(RankupError) as error:
        read_script(job(tmp_path / "project", f"{first}\n"))
    assert error.value.code == "bad-script"
