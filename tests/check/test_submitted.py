"""A job whose text a script itself has, in a here-document, in --wrap or in a file, is checked as a job of its own."""

from __future__ import annotations

import pytest

from rankup.check.paths import check_paths
from rankup.check.selection import Selection

HEAD = "#!/bin/bash\nmkdir -p slurm\n"
OPTIONS = ("--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=4", "--gpus-per-node=2")
TORCHRUN = (
    "torchrun --nproc_per_node=8 --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=localhost:29500 train.py"
)
JOB = "#!/bin/bash\n" + "".join(f"#SBATCH {one}\n" for one in (*OPTIONS, "-o slurm/%j.out")) + TORCHRUN + "\n"


def checked(folder, text):
    (folder / "submit.sh").write_text(text)
    (folder / "train.py").write_text("import torch\n")
    return check_paths([folder / "submit.sh"], Selection(), None)


@pytest.mark.parametrize(
    "text",
    [
        f"sbatch <<EOF\n{JOB}EOF\n",
        f"jid=$(sbatch --parsable <<'EOF'\n{JOB}EOF\n)\n",
        f"cat <<EOF | sbatch\n{JOB}EOF\n",
        f"for lr in 1 2; do\ncat >job_$lr.sh <<EOF\n{JOB.rstrip()} --lr $lr\nEOF\nsbatch job_$lr.sh\ndone\n",
        f"sbatch {' '.join(OPTIONS)} --wrap='{TORCHRUN}'\n",
        f"sbatch {' '.join(OPTIONS)} <<EOF\n#!/bin/bash\n{TORCHRUN}\nEOF\n",
        f"echo '#!/bin/bash\n{TORCHRUN}' | sbatch {' '.join(OPTIONS)}\n",
    ],
)
def test_the_inner_job_is_judged_at_its_place_and_the_outer_script_is_none(tmp_path, text):
    found = checked(tmp_path, HEAD + text)
    places = {d.rule.code: d.place for d in found.diagnostics}
    assert places.keys() >= {"RK101", "RK106"} and "RK149" not in places
    line = (HEAD + text).split("\n")[places["RK106"].line - 1]
    assert line[places["RK106"].column - 1 :].startswith("--nproc_per_node=8")
    assert found.not_followed == []
    assert not any(map(found.can_fix, found.diagnostics))


def test_a_text_that_nobody_knows_is_named(tmp_path):
    assert [one.name for _, one in checked(tmp_path, HEAD + "make_job | sbatch\n").not_followed] == ["sbatch"]
    assert (
        checked(tmp_path, HEAD + "grep -v x job.sh | sbatch\nsbatch job.sh\nsbatch --help\n").not_followed
        == []
    )


def test_what_the_outer_shell_expands_is_not_known_in_the_inner_job(tmp_path):
    text = HEAD + f"for n in 1 2; do sbatch <<EOF\n{JOB.replace('--nodes=2', '--nodes=$n')}EOF\ndone\n"
    assert "RK101" not in {d.rule.code for d in checked(tmp_path, text).diagnostics}
