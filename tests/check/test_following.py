"""What a job starts is read, wherever it is: programs by any path, and the scripts between."""

from __future__ import annotations

import pytest

from rankup.check.paths import check_paths
from rankup.check.selection import Selection

HEAD = "#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4\n"
PROGRAM = (
    "import torch.distributed as dist\n\ndist.init_process_group('nccl')\ndist.destroy_process_group()\n"
)
TORCHRUN = "torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$HEAD_NODE:12345 "


def checked(folder, files, *paths):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return check_paths([folder / path for path in paths], Selection(), None)


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("srun python /home/somebody/clone/train.py", "train.py"),
        ("srun python /home/somebody/project/deep/train.py", "deep/train.py"),
        ("srun python $WORK/project/train.py", "train.py"),
        ("srun python project/deep/train.py", "deep/train.py"),
        ('srun python "${1:-train.py}"', "train.py"),
        ('SCRIPT="${1:-deep/train.py}"\nsrun python $SCRIPT', "deep/train.py"),
        ("SCRIPT=$1\nSCRIPT=${SCRIPT:-train.py}\nsrun python $SCRIPT", "train.py"),
        (': "${SCRIPT:=train.py}"\nsrun python $SCRIPT', "train.py"),
        ('if [ -z "$1" ]; then script=train.py; else script=$1; fi\nsrun python $script', "train.py"),
        ("srun python -m pkg.train", "src/pkg/train.py"),
        ("srun python -m pkg", "pkg/__main__.py"),
        ("srun singularity_wrapper exec python train.py", "train.py"),
        ('start() { srun "$@"; }\nstart python train.py', "train.py"),
        ("printf '%s\\n' '#!/bin/sh' 'exec \"$@\"' >w.sh\nsrun sh w.sh python train.py", "train.py"),
        ("srun bash -c 'exec \"$@\"' rank python train.py", "train.py"),
        (
            'run() { local n=$1; shift; torchrun --nproc-per-node="$n" "$@"; }\nrun "${GPUS:-2}" train.py',
            "train.py",
        ),
        ('run() { shift 2; python "$@"; }\nrun a b train.py', "train.py"),
        ("srun bash -c 'exec python \"$1\"' rank train.py", "train.py"),
        ("mpirun -np 8 -x PATH ${LD_LIBRARY_PATH:+-x LD_LIBRARY_PATH} python train.py", "train.py"),
        ("srun ${CORES:+numactl -C $CORES} python train.py", "train.py"),
        ("CORES=\nsrun ${CORES:+numactl -C} python train.py", "train.py"),
        (
            """for i in 0 1; do { echo "export NODE_RANK=$i"; printf 'python %s\\n' train.py; } >"node-$i.sh"; done
for i in 0 1; do pbsdsh -n "$i" bash node-$i.sh; done""",
            "train.py",
        ),
        (
            """for i in 0 1; do echo python train.py >"node-$i.sh"; done
mpiexec bash -c 'bash "node-$PALS_RANKID.sh"'""",
            "train.py",
        ),
        ('echo python train.py >node.sh\nssh node1 "bash $(printf %q node.sh)"', "train.py"),
        ("srun my_wrapper --bind /scratch bash -c 'python train.py'", "train.py"),
        ("srun podman-hpc run --rm image python train.py", "train.py"),
        ("srun shifter --image=torch python train.py", "train.py"),
        ("srun apptainer run --nv torch.sif python train.py", "train.py"),
        ("srun uv run train.py", "train.py"),
        ("srun uv run --frozen python train.py", "train.py"),
        ("srun pixi run python train.py", "train.py"),
        ("jsrun -n 2 -a 1 -c 7 -g 1 python train.py", "train.py"),
        ("# sbatch --time=1:00 job.sh deep/train.py\nsrun python $1", "deep/train.py"),
        (
            """echo "Usage: sbatch job.sh train.py [--options]"
SCRIPT="$1"
shift
srun python -u "$SCRIPT" "$@\"""",
            "train.py",
        ),
    ],
)
def test_a_program_is_found(tmp_path, line, program):
    found = checked(tmp_path / "project", {"job.sh": f"{HEAD}{line}\n", program: PROGRAM}, "job.sh")
    assert str(tmp_path / "project" / program) in found.texts
    assert found.not_followed == []


@pytest.mark.parametrize(
    ("line", "name", "reason"),
    [
        ("srun python train.py", "train.py", "not found at train.py"),
        ("srun python /home/x/clone/ddp.py", "ddp.py", "not found at /home/x/clone/ddp.py"),
        ("srun ./run.sh", "run.sh", "not found at run.sh"),
        ("srun bash steps/run.sh", "run.sh", "not found at steps/run.sh"),
        ("srun python -m pkg.train", "pkg.train", "not found at pkg/train.py"),
        ("srun python $1", "$1", "only the job knows its path"),
        ("# usage: sbatch job.sh your_program.py\nsrun python $1", "$1", "only the job knows its path"),
        ("srun bash -c 'python $1' rank", "$1", "only the job knows its path"),
        ("srun python 2 train.py", "2", "only the job knows its path"),
        ("$COMMAND", "$COMMAND", "only the job knows its words"),
        ("if a; then s=a.py; else s=b.py; fi\nsrun python $s", "$s", "only the job knows its path"),
        ("source env.sh", "env.sh", "not found at env.sh"),
        ("bash -c 'source conf/x.sh; hostname'", "x.sh", "not found at conf/x.sh"),
        ("srun uv run train-model --epochs 3", "train-model", "a command of the environment"),
        ("pixi run train\necho done", "train", "a command of the environment"),
        ("uv run train-model\nrsync -a out /store", "train-model", "a command of the environment"),
        ("srun litgpt pretrain --config c.yaml", "litgpt", "a command of the environment"),
        ("srun singularity run --nv image.sif", "image.sif", "a command of the container"),
        ("srun apptainer exec --nv image.sif train-model", "train-model", "a command of the container"),
        ("make -j data\nmake train", "make", "a command of the environment"),
        ("if [ -d data ]; then ./bin/train; fi", "train", "a command at ./bin/train"),
        ("main() { litgpt pretrain; }\nmain", "litgpt", "a command of the environment"),
        ("srun bash -c 'module load x; train-model'", "train-model", "a command of the environment"),
        ("printf '%s\\n' 'train-model' >w.sh\nbash w.sh", "train-model", "a command of the environment"),
    ],
)
def test_what_was_not_read_is_named_with_the_reason(tmp_path, line, name, reason):
    found = checked(tmp_path, {"job.sh": f"{HEAD}{line}\n"}, "job.sh")
    assert [(one.name, one.reason) for _, one in found.not_followed] == [(name, reason)]


@pytest.mark.parametrize(
    "lines",
    [
        "srun hostname\nnvidia-smi",
        "module load cuda\nrsync -a data $TMPDIR",
        "singularity pull torch.sif docker://torch\nconda activate x\nuv sync",
        "srun bash -c 'hostname; sleep 1'",
        "make\nsrun python -c 'print(1)'",
        'log() { echo "$@"; }\nlog done',
        "trap 'clean-up' EXIT\nsleep 1",
        "id=$(make-id)\nsbatch next.sh",
        "srun --pty bash",
        "source /etc/profile.d/modules.sh\n. ~/.bashrc\nsource venv/bin/activate",
        "if [ -f env.sh ]; then source env.sh; fi",
    ],
)
def test_a_script_of_mere_tools_is_followed(tmp_path, lines):
    assert checked(tmp_path, {"job.sh": f"{HEAD}{lines}\n"}, "job.sh").not_followed == []


def test_what_prepares_a_job_need_not_be_read(tmp_path):
    lines = "make -j data\ntidal fetch\nsrun bash -c 'prepare-node; python train.py'\n"
    files = {"job.sh": HEAD + lines, "train.py": PROGRAM}
    assert checked(tmp_path, files, "job.sh").not_followed == []


def test_a_part_of_a_program_that_is_not_there_is_named(tmp_path):
    job = f"{HEAD}srun python train.py\n"
    files = {
        "job.sh": job,
        "train.py": "from .trainer import main\nfrom .there import x\nmain()\n",
        "there.py": "x = 1\n",
    }
    ((place, one),) = checked(tmp_path, files, "job.sh").not_followed
    assert (one.name, one.reason) == ("trainer.py", "not found at trainer.py")
    assert place.path == str(tmp_path / "train.py")


def test_a_script_for_another_shell_is_named_as_not_read(tmp_path):
    found = checked(
        tmp_path,
        {"job.sh": "#!/bin/csh\n#PBS -l select=2\nforeach x (1 2)\npython train.py\nend\n"},
        "job.sh",
    )
    ((_, one),) = found.not_followed
    assert (one.name, one.reason) == ("job.sh", "it is a script for csh: only its directives were read")


@pytest.mark.parametrize("start", ["srun ./run.sh", "srun bash run.sh", "srun bash steps/../run.sh"])
def test_a_helper_script_is_read_where_it_runs_and_a_finding_in_it_has_its_place(tmp_path, start):
    helper = "#!/bin/bash\n" + TORCHRUN.replace("--nnodes=2", "--nnodes=3") + "train.py\n"
    files = {"job.sh": f"{HEAD}{start}\n", "run.sh": helper, "train.py": PROGRAM}
    found = checked(tmp_path, files, "job.sh")
    places = {d.rule.code: (d.place.path, d.place.line) for d in found.diagnostics}
    assert places["RK107"] == (str(tmp_path / "run.sh"), 2)
    assert str(tmp_path / "train.py") in found.texts
    assert found.not_followed == []


def test_what_the_batch_shell_hands_to_a_helper_is_known_there(tmp_path):
    helper = "torchrun --nnodes=$NNODES --node_rank=$SLURM_NODEID --master_addr=$1 train.py\n"
    job = f"{HEAD}export NNODES=3\nsrun bash run.sh $(hostname)\n"
    found = checked(tmp_path, {"job.sh": job, "run.sh": helper, "train.py": PROGRAM}, "job.sh")
    codes = [d.rule.code for d in found.diagnostics]
    assert "RK107" in codes  # three nodes, as the job script says
    assert "RK102" not in codes  # the step's shell expands SLURM_NODEID


def test_settings_of_a_sourced_file_are_known(tmp_path):
    job = f"{HEAD}source env.sh\nsrun torchrun --nnodes=$NNODES --master_addr=$HEAD_NODE train.py\n"
    files = {"job.sh": job, "env.sh": "export NNODES=3\n", "train.py": PROGRAM}
    found = checked(tmp_path, files, "job.sh")
    assert "RK107" in [d.rule.code for d in found.diagnostics]


def test_a_helper_that_a_checked_job_runs_is_judged_once(tmp_path):
    helper = "#!/bin/bash\n" + TORCHRUN + "--node_rank=$SLURM_NODEID train.py\n"
    found = checked(
        tmp_path, {"job.sh": f"{HEAD}srun ./run.sh\n", "run.sh": helper, "train.py": PROGRAM}, "."
    )
    assert len([d for d in found.diagnostics if d.rule.code == "RK103"]) == 1


def test_a_script_that_runs_itself_ends(tmp_path):
    found = checked(tmp_path, {"job.sh": f"{HEAD}srun ./run.sh\n", "run.sh": "./run.sh\n"}, "job.sh")
    assert [one.name for _, one in found.not_followed] == ["run.sh"]


@pytest.mark.parametrize(
    "line", ["pip install deepspeed torch", "which python train.py", "grep python train.py"]
)
def test_words_that_are_no_command_start_nothing(tmp_path, line):
    found = checked(tmp_path, {"job.sh": f"{HEAD}{line}\n"}, "job.sh")
    assert found.not_followed == []


@pytest.mark.parametrize(
    "start",
    [
        'start() { "$@"; }\nstart ',
        "cat >w.sh <<'X'\nexec \"$@\"\nX\nsh w.sh ",
    ],
)
def test_all_words_of_a_command_are_handed_on(tmp_path, start):
    head = "#!/bin/bash\n#SBATCH --nodes=1 --ntasks-per-node=1 --gpus-per-node=4 --cpus-per-task=8 --time=1:00:00\n"
    job = head + start + "torchrun --standalone --nproc_per_node=4 train.py\n"
    found = checked(tmp_path, {"job.sh": job, "train.py": PROGRAM}, "job.sh")
    assert not [finding.code for finding in found.findings if finding.code == "RK106"]


def test_a_loader_without_a_sampler_is_told_to_shuffle_itself(tmp_path):
    text = """import lightning as L
import torchvision
from torch.utils.data import DataLoader

class Data(L.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(torchvision.datasets.MNIST("data", train=True), batch_size=64)
"""
    (found,) = [d for d in checked(tmp_path, {"a.py": text}, "a.py").diagnostics if d.rule.code == "RK311"]
    assert found.finding.fix == "Give the loader shuffle=True."
