"""Whole job scripts with their programs: what is found is labelled, and a mistake put into a good one is found."""

from __future__ import annotations

import posixpath
from pathlib import Path

import pytest

from rankup.check.check import diagnostics, read_subjects
from rankup.check.document import Document
from rankup.core.toml_file import read_toml
from rankup.findings.finding import Severity

CORPUS = Path(__file__).parent / "corpus"
LABELS = {**read_toml(CORPUS / "labels.toml", "labels"), **read_toml(CORPUS / "labels-prog.toml", "labels")}
FOLDERS = sorted(path.name for path in CORPUS.iterdir() if path.is_dir() and not path.name.startswith("__"))


def files_of(folder):
    return {path.name: path.read_text() for path in sorted((CORPUS / folder).iterdir()) if path.is_file()}


def found(files, *, notes=False):
    """File → codes, of a folder's files."""
    documents = {name: Document(name, text) for name, text in files.items()}
    jobs = [document for name, document in documents.items() if name.endswith((".sh", ".pbs", ".sbatch"))]
    programs = [document for name, document in documents.items() if name.endswith(".py")]
    subjects = read_subjects(jobs, programs, lambda _, name: documents.get(posixpath.normpath(name)))
    codes = {}
    for diagnostic in diagnostics(subjects):
        if notes or diagnostic.match.severity is not Severity.NOTE:
            codes.setdefault(diagnostic.match.document.path, set()).add(diagnostic.rule.code)
    return codes


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_is_found_is_what_is_labelled(folder):
    labelled = {
        name.partition("/")[2]: set(codes)
        for name, codes in LABELS.items()
        if name.partition("/")[0] == folder and codes
    }
    assert found(files_of(folder)) == labelled


def test_labels_are_of_files():
    assert [name for name in LABELS if not (CORPUS / name).is_file()] == []


def test_half_of_the_job_scripts_are_correct():
    jobs = [
        path.relative_to(CORPUS).as_posix()
        for path in CORPUS.glob("job-*/*")
        if path.suffix in (".sh", ".pbs")
    ]
    correct = [name for name in jobs if not LABELS.get(name)]
    assert len(jobs) >= 70
    assert 2 * len(correct) >= len(jobs)


# Folder, what is replaced, by what, and the rule that has to find it.
MUTANTS = [
    ("job-slurm-torchrun-c10d", "srun torchrun", "torchrun", "RK101"),
    ("job-slurm-launcher-variable", 'srun --jobid "$SLURM_JOB_ID" bash -c', "bash -c", "RK101"),
    ("job-slurm-accelerate", "srun $LAUNCHER", "$LAUNCHER", "RK101"),
    ("job-slurm-torchrun", "--node_rank=$SLURM_NODEID", "--node_rank='$SLURM_NODEID'", "RK102"),
    ("job-slurm-worker-script", "<<'EOF'", "<<EOF", "RK102"),
    ("job-slurm-torchrun", "--node_rank=$SLURM_NODEID", "--node_rank=0", "RK103"),
    ("job-slurm-torchrun", "--ntasks-per-node=1", "--ntasks-per-node=4", "RK104"),
    ("job-slurm-launcher-variable", "--ntasks-per-node=1 ", "--ntasks-per-node=8 ", "RK104"),
    ("job-slurm-apptainer", "--ntasks-per-node=1", "--ntasks-per-node=4", "RK104"),
    ("job-slurm-srun-python", "--ntasks-per-node=4", "--ntasks-per-node=8", "RK105"),
    ("job-slurm-srun-python", "--gpus-per-node=4", "--gpus-per-node=2", "RK105"),
    ("job-slurm-one-node", "--nproc_per_node=4", "--nproc_per_node=8", "RK106"),
    ("job-slurm-launcher-variable", "--gres=gpu:8", "--gres=gpu:4", "RK106"),
    ("job-slurm-apptainer", "--nnodes=2", "--nnodes=4", "RK107"),
    ("job-slurm-launcher-variable", "NNODES=$SLURM_NNODES", "NNODES=2", "RK107"),
    ("job-slurm-torchrun", "#SBATCH --ntasks-per-node=1", "#SBATCH --ntasks=1", "RK107"),
    (
        "job-slurm-srun-python",
        '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "127.0.0.1",
        "RK111",
    ),
    ("job-slurm-worker-script", "--master_addr=$MASTER_ADDR", "--master_addr=$(hostname)", "RK111"),
    ("job-slurm-srun-python", "| head -n 1)", "| head -n 1 || echo localhost)", "RK112"),
    ("job-slurm-one-node", "torchrun", "export OMP_NUM_THREADS=16\ntorchrun", "RK121"),
    ("job-slurm-torchrun-c10d", "set -euo pipefail", "set -eu", "RK122"),
    ("job-slurm-one-node", "#SBATCH --gpus=4", "set -e\n#SBATCH --gpus=4", "RK123"),
    (
        "job-pbs-mpiexec",
        'mpiexec -n "$nodes" --ppn 1 --cpu-bind none --env OMP_NUM_THREADS=8 \\\n',
        "",
        "RK124",
    ),
    ("job-pbs-mpiexec", "--nproc_per_node=4", "--nproc_per_node=8", "RK125"),
    ("job-slurm-signal", "trap 'touch STOP' USR1", "", "RK127"),
    ("job-slurm-signal", "--epochs 200 &", "--epochs 200", "RK128"),
    ("job-slurm-signal", "--signal=B:USR1", "--signal=USR1", "RK129"),
    ("job-slurm-signal", 'scontrol requeue "$SLURM_JOB_ID"', "exit 75", "RK130"),
    ("job-slurm-signal", "#SBATCH --open-mode=append\n", "", "RK131"),
    ("job-slurm-srun-python", "--cpus-per-task=8", "--cpus-per-task=8.", "RK132"),
    ("job-slurm-srun-python", "\n", "\r\n", "RK133"),
    ("job-slurm-one-node", "#SBATCH --gpus", "#SBACTH --gpus", "RK134"),
    ("job-pbs-mpiexec", "#PBS -j oe", "#PBS -j oe # one log", "RK135"),
    ("job-slurm-torchrun-c10d", '"$SLURM_NNODES" \\\n', '"$SLURM_NNODES" \\ \n', "RK136"),
    ("job-slurm-torchrun", "$SLURM_NODEID", "\\$SLURM_NODEID", "RK137"),
    ("job-slurm-torchrun-c10d", "$MASTER_ADDR:29500", "$MASTER_ADR:29500", "RK138"),
    ("job-slurm-one-node", "#!/bin/bash", "#!/bin/csh\nexport X=1", "RK139"),
    ("job-pbs-ssh", "done\nwait", "done", "RK140"),
    ("job-pbs-pbsdsh", "done\nwait", "done", "RK140"),
    ("job-slurm-srun-python", "srun --cpu-bind=cores --kill-on-bad-exit=1 python", "python", "RK141"),
    ("job-pbs-mpiexec", '"$nodes" --ppn 1 --cpu-bind none', "2", "RK143"),
    (
        "job-slurm-apptainer",
        "torchrun --nnodes",
        "torchrun --rdzv_backend=c10d --rdzv_id=$RANDOM --nnodes",
        "RK144",
    ),
    ("job-slurm-one-node", "torchrun", 'cd "$(dirname "$0")"\ntorchrun', "RK145"),
    ("job-pbs-one-gpu", "cd ${PBS_O_WORKDIR}\n", "", "RK146"),
    ("job-pbs-ssh", "cd $PBS_O_WORKDIR; source ~/venv/bin/activate; ", "", "RK158"),
    ("job-slurm-srun-python", "#SBATCH --gpus-per-node=4", "#SBATCH --gpus-per-task=1", "RK118"),
    ("job-slurm-one-node", "--cpus-per-task=16", "--cpus-per-task=8", "RK308"),
    ("job-slurm-apptainer", "torchrun --nnodes=2 ", "torchrun ", "RK107"),
    ("job-slurm-torchrun-c10d", '    --nnodes "$SLURM_NNODES" \\\n', "", "RK107"),
    ("job-slurm-deepspeed", '--hostfile "$HOSTFILE" ', "", "RK101"),
    ("job-slurm-srun-python", "--ntasks-per-node=4", "--ntasks-per-node=1", "RK105"),
    ("job-slurm-srun-python", "export SRUN", "export WORLD_SIZE=4 SRUN", "RK162"),
    ("job-slurm-worker-script", "--node_rank=$SLURM_NODEID", "--node_rank=1", "RK103"),
    ("job-more-single", "#!/bin/bash\n#SBATCH --gres", '#!/bin/bash\n"\n#SBATCH --gres', "RK159"),
]


@pytest.mark.parametrize(
    ("folder", "old", "new", "code"), MUTANTS, ids=[f"{code}-{folder}" for folder, _, _, code in MUTANTS]
)
def test_a_mistake_put_into_a_good_script_is_found(folder, old, new, code):
    files = files_of(folder)
    job = next(name for name in files if not name.endswith(".py"))
    assert old in files[job]
    assert code not in found(files).get(job, ())
    files[job] = files[job].replace(old, new)
    assert code in found(files)[job]
