"""What a job script starts, where each word expands, and how often each step starts it."""

from __future__ import annotations

import pytest

from rankup.check.document import Document
from rankup.check.facts.job.commands import Variable
from rankup.check.facts.job.reader import read_job

TWO_NODES = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n#SBATCH --gres=gpu:4\n"


def launch_of(body, head=TWO_NODES):
    (launch,) = read_job(Document("job.sh", head + body)).launches
    return launch


def size(launch):
    return launch.step and (
        launch.step.kind,
        launch.step.nodes,
        launch.step.tasks,
        launch.step.tasks_per_node,
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("python train.py", None),
        ("srun python train.py", ("srun", 2, 8, 4)),
        ("srun -n 2 --ntasks-per-node=1 python train.py", ("srun", 2, 2, 1)),
        ("srun -N1 -n1 python train.py", ("srun", 1, 1, 1)),
        ("srun --ntasks-per-node 1 python train.py", ("srun", 2, 2, 1)),
        ("srun $SRUN_ARGS --mpi pmix -u python train.py", ("srun", 2, 8, 4)),
        ("mpirun -np 8 --map-by ppr:4:node -x PATH --mca btl tcp python train.py", ("mpirun", 2, 8, 4)),
        ("mpiexec -n 2 --ppn 1 --cpu-bind depth python train.py", ("mpiexec", 2, 2, 1)),
        ("mpiexec -n $((2 * 4)) -ppn 4 python train.py", ("mpiexec", 2, 8, 4)),
        ("mpiexec -np 8 -ppn 4 -env OMP_NUM_THREADS=$N python train.py", ("mpiexec", 2, 8, 4)),
        ('ssh node1 "cd $PWD; python train.py"', ("ssh", 1, 1, 1)),
        ("ibrun python train.py", ("ibrun", None, None, None)),
        ("aprun -n 8 -N 4 python train.py", ("aprun", 2, 8, 4)),
        ("time srun --unbuffered nice -n 5 python train.py", ("srun", 2, 8, 4)),
        ("srun -K1 python train.py", ("srun", 2, 8, 4)),
        ("srun -lN2 -n2 python train.py", ("srun", 2, 2, 1)),
        ("srun -ul --kill-on-bad-exit python train.py", ("srun", 2, 8, 4)),
        ("srun --ntasks$PER=2 python train.py", ("srun", 2, 8, 4)),
        ("srun --ntasks-per-n=1 -n$SLURM_NNODES python train.py", ("srun", 2, 2, 1)),
        ("mpiexec -n 8 -N 4 -d 8 --cpu-bind depth python train.py", ("mpiexec", 2, 8, 4)),
        ("aprun -n 8 -N 4 -cc cpu -d 8 python train.py", ("aprun", 2, 8, 4)),
    ],
)
def test_tasks_of_a_step(body, expected):
    assert size(launch_of(body)) == expected


@pytest.mark.parametrize(
    "line",
    [
        "accelerate launch --fsdp_min_num_params 2000 train.py logs",
        "accelerate launch --fp8-backend TE --machine_rank $SLURM_NODEID train.py logs",
        "python -m accelerate.commands.launch --parallelism_config_tp_size 2 train.py logs",
        "deepspeed --enable_each_rank_log logs train.py logs",
        "torchrun --signals-to-handle SIGUSR1 --shutdown-timeout 60 train.py logs",
        "torchrun --nproc-per 4 -t3 train.py logs",
        "horovodrun -np 8 --start-timeout 60 python train.py logs",
        "python -W ignore -u train.py logs",
        "apptainer exec -e --nv image.sif python train.py logs",
        "docker run --rm -e A=1 image python train.py logs",
        "timeout -k 10 1h nice -n 5 python train.py logs",
    ],
)
def test_the_value_of_an_option_is_not_the_program(line):
    launch = launch_of(line)
    assert (launch.script, [value.text for value in launch.arguments]) == ("train.py", ["logs"])


@pytest.mark.parametrize(
    "body",
    [
        "torchrun --nnodes=2 --nproc_per_node=4 train.py --lr 1",
        "torchrun --nnodes 2 --nproc-per-node 4 train.py --lr 1",
        "python -u -m torch.distributed.run --nnodes=2 --nproc_per_node=4 train.py --lr 1",
        "python3 -m torch.distributed.launch --nnodes=2 --nproc_per_node=4 train.py --lr 1",
        "N=2\ntorchrun --nnodes=$N --nproc_per_node=$((N * 2)) train.py --lr 1",
        'LAUNCHER="torchrun --nnodes=2 --nproc_per_node=4"\nCMD="train.py --lr 1"\neval "$LAUNCHER $CMD"',
        'L="torchrun --nnodes=2 --nproc_per_node 4"\n$L train.py --lr 1',
        "a=(--nnodes=2 --nproc_per_node=4)\na+=(train.py)\ntorchrun ${a[@]} --lr 1",
        "run() { torchrun --nnodes=$1 --nproc_per_node=$2 train.py --lr 1; }\nrun 2 4",
        "cat > w.sh <<'EOF'\ntorchrun --nnodes=2 --nproc_per_node=4 train.py --lr 1\nEOF\nbash w.sh",
        "apptainer exec --nv -B /a:/b image.sif torchrun --nnodes=2 --nproc_per_node=4 train.py --lr 1",
        "srun bash -c 'X=4; exec torchrun --nnodes=2 --nproc_per_node=$X train.py --lr 1'",
        'conda run -n env torchrun \\\n  --nnodes="2" \\\n  --nproc_per_node="4" \\\n  train.py --lr 1',
        "OMP_NUM_THREADS=1 env A=b timeout 5h torchrun --nnodes=2 --nproc_per_node=4 train.py --lr 1",
        "if true; then torchrun --nnodes=2 --nproc_per_node=4 train.py --lr 1 2>&1 | tee log; fi",
        "torchrun --nnodes=2 --nproc_per_node=4 --no_python python train.py --lr 1",
    ],
)
def test_ways_to_start_torchrun(body):
    launch = launch_of(body + "\n")
    assert launch.script == "train.py"
    assert launch.is_torchrun
    numbers = {name: launch.options[name].number(lambda _: None) for name in ("nnodes", "nproc_per_node")}
    assert numbers == {"nnodes": 2, "nproc_per_node": 4}
    assert [word.text for word in launch.arguments][-2:] == ["--lr", "1"]


@pytest.mark.parametrize(
    ("body", "in_batch_shell"),
    [
        ("srun torchrun --node_rank=$SLURM_NODEID train.py", True),
        ('srun bash -c "torchrun --node_rank=$SLURM_NODEID train.py"', True),
        ('srun bash -c "torchrun --node_rank=\\$SLURM_NODEID train.py"', False),
        ("srun bash -c 'torchrun --node_rank=$SLURM_NODEID train.py'", False),
        ("R=$SLURM_NODEID\nsrun torchrun --node_rank=$R train.py", True),
        ("export R=$SLURM_NODEID\nsrun bash -c 'torchrun --node_rank=$R train.py'", True),
        ('C="torchrun --node_rank=\\$SLURM_NODEID train.py"\nsrun bash -c "$C"', False),
        ("srun bash -c 'R=$SLURM_NODEID; torchrun --node_rank=$R train.py'", False),
        ("cat > w.sh <<EOF\ntorchrun --node_rank=$SLURM_NODEID train.py\nEOF\nsrun bash w.sh", True),
        ("cat > w.sh <<EOF\ntorchrun --node_rank=\\$SLURM_NODEID train.py\nEOF\nsrun bash ./w.sh", False),
        ("cat <<'EOF' > w.sh\ntorchrun --node_rank=$SLURM_NODEID train.py\nEOF\nsrun ./w.sh", False),
        ("srun bash <<'EOF'\ntorchrun --node_rank=$SLURM_NODEID train.py\nEOF", False),
        ("f() { torchrun --node_rank=$SLURM_NODEID train.py; }\nexport -f f\nsrun bash -c f", False),
    ],
)
def test_where_a_variable_expands(body, in_batch_shell):
    (atom,) = launch_of(body + "\n").options["node_rank"].atoms
    assert isinstance(atom, Variable)
    assert atom.name == "SLURM_NODEID"
    assert (atom.shell.step is None) is in_batch_shell


@pytest.mark.parametrize(
    ("body", "script"),
    [
        ("cd src\npython train.py", "src/train.py"),
        ('cd "$SLURM_SUBMIT_DIR"\npython ./train.py', "train.py"),
        ('cd "$SLURM_SUBMIT_DIR/a"\npython b/../train.py', "a/train.py"),
        ("python $SLURM_SUBMIT_DIR/code/train.py", "code/train.py"),
        ("cd /scratch/me\npython train.py", "train.py"),
        ("(cd src; true)\npython train.py", "train.py"),
        ("python /abs/train.py", "/abs/train.py"),
        ("python $WHERE/train.py", "/train.py"),
        ("python -m package.train", ""),
        ("cd ..\npython train.py", "../train.py"),
    ],
)
def test_the_path_of_a_program(body, script):
    assert launch_of(body).script == script


def test_a_value_that_depends_on_a_branch_is_not_known():
    launch = launch_of('N=2\nif [ -n "$X" ]; then N=4; fi\ntorchrun --nproc_per_node=$N train.py\n')
    assert launch.options["nproc_per_node"].known is None
    launch = launch_of("N=2\nfor i in 1 2; do torchrun --nproc_per_node=$N train.py; N=4; done\n")
    assert launch.options["nproc_per_node"].known is None


def test_no_place_is_empty():
    text = (
        TWO_NODES
        + 'P=7010\nA=$(hostname)\nsrun bash -c "torchrun --rdzv_endpoint=$A:$P --nnodes=$P train.py"\n'
    )
    (launch,) = read_job(Document("job.sh", text)).launches
    for value in (*launch.options.values(), *launch.words.values(), launch.target):
        assert text[value.span.start : value.span.end].strip()


def test_places_are_those_of_the_script():
    text = TWO_NODES + "N=é\nCMD='torchrun --nnodes=3'\nsrun bash -c \"$CMD train.py\"\n"
    (launch,) = read_job(Document("job.sh", text)).launches
    assert text[launch.options["nnodes"].span.start : launch.options["nnodes"].span.end] == "3"


@pytest.mark.parametrize(
    "body",
    [
        "python -c 'print(1)'",
        "python - <<EOF\nx\nEOF",
        "python --version",
        "echo torchrun x.py",
        "which python",
    ],
)
def test_what_is_not_a_launch(body):
    assert read_job(Document("job.sh", TWO_NODES + body + "\n")).launches == []


def test_the_numbers_of_a_start():
    launch = launch_of(
        "srun --ntasks=2 --ntasks-per-node=1 torchrun --nnodes=2 --nproc_per_node=gpu train.py -x 1\n"
    )
    start = launch.start
    assert (start.launcher, start.nodes, start.processes_per_node, start.gpus_per_node) == (
        "torchrun",
        2,
        4,
        4,
    )
    assert start.arguments == ("-x", "1")
    start = launch_of("srun python train.py\n").start
    assert (start.launcher, start.nodes, start.processes_per_node) == ("srun", 2, 4)


def test_an_arithmetic_command_in_a_substitution_ends_with_its_bracket():
    launch = launch_of(
        "torchrun --a=$(((N)) && echo 1) --b=$((echo 1; echo 2) | sort) --nnodes=$(((1+1)*2)) train.py"
    )
    assert launch.script == "train.py"
    assert launch.options["nnodes"].text == "$(((1+1)*2))"
