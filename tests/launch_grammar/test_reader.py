"""Command lines as their commands read them."""

from __future__ import annotations

import pytest

from rankup.launch_grammar.dialects import families_of, read_mpi
from rankup.launch_grammar.launchers import COMMANDS, MODULES, launch_of
from rankup.launch_grammar.reader import Text, read_text


@pytest.mark.parametrize(
    ("line", "options", "program"),
    [
        ("srun -K1 a", "kill-on-bad-exit=1", "a"),
        ("srun -K a", "kill-on-bad-exit=", "a"),
        ("srun --kill-on-bad-exit a", "kill-on-bad-exit=", "a"),
        ("srun -lN2 a -N3", "label= nodes=2", "a -N3"),
        ("srun -ul a", "unbuffered= label=", "a"),
        ("srun -lun 4 a", "label= unbuffered= ntasks=4", "a"),
        ("srun --nodes 2 --ntasks=4 a", "nodes=2 ntasks=4", "a"),
        ("srun --ntasks-per-n 3 --tasks-per-node=2 a", "ntasks-per-node=2", "a"),
        ("srun -u --exclusive -- a -b", "unbuffered= exclusive=", "a -b"),
        ("srun --container-image x.sqsh --mpi=pmix a", "container-image=x.sqsh mpi=pmix", "a"),
        ("accelerate --fsdp_min_num_params 2000 train.py", "fsdp_min_num_params=2000", "train.py"),
        ("accelerate --num-machines 2 --machine_rank=1 train.py", "nnodes=2 node_rank=1", "train.py"),
        ("deepspeed --enable_each_rank_log DIR train.py", "enable_each_rank_log=DIR", "train.py"),
        ("deepspeed -H hosts --num_gpus 4 train.py", "hostfile=hosts nproc_per_node=4", "train.py"),
        ("torchrun --signals-to-handle X train.py", "signals_to_handle=X", "train.py"),
        (
            "torchrun --nproc-per 3 -r3 -m train --lr 1",
            "nproc_per_node=3 redirects=3 module=",
            "train --lr 1",
        ),
        ("horovodrun -np 4 -H a:2,b:2 python x", "num_processes=4 hosts=a:2,b:2", "python x"),
        ("openmpi --n 2 -x A=1 --mca btl tcp --pernode a", "np=2 env=A=1 mca=tcp pernode=", "a"),
        ("hydra -genv A 1 -n 2 a", "env=1 np=2", "a"),
        ("hydra -genv A=1 -n=2 a", "env=A=1 np=2", "a"),
        (
            "pals -n 8 -ppn 4 --cpu-bind depth -d 8 -env A=1 a",
            "np=8 ppn=4 cpu-bind=depth depth=8 env=A=1",
            "a",
        ),
        ("jsrun -n2 -a1 --smpiargs=-gpu -i a", "nrs=2 tasks_per_rs=1 smpiargs=-gpu immediate=", "a"),
        ("lrun -T4 -N2 a", "ppn=4 nodes=2", "a"),
        ("qsub -l select=2 -lwalltime=1:00 -V job.sh", "l=walltime=1:00 V=", "job.sh"),
        ("bsub -nnodes 2 -W 1:00 -Is a", "nnodes=2 W=1:00 Is=", "a"),
        ("python -um package.train --lr 1", "u= m=package.train", "--lr 1"),
        ("python -X dev x.py -c", "X=dev", "x.py -c"),
        ("apptainer -eB /data --nv image.sif a", "cleanenv= bind=/data nv=", "image.sif a"),
        ("docker -e A=1 image a", "env=A=1", "image a"),
        ("ssh -tt -oBatchMode=yes -p 22 host a", "t= o=BatchMode=yes p=22", "host a"),
        ("pbsdsh -n 3 -- a", "index=3", "a"),
    ],
)
def test_options_and_program(line: str, options: str, program: str):
    command, *words = line.split()
    read = read_text(command, words)
    assert " ".join(f"{name}={value}" for name, value in read.options.items()) == options
    assert (read.unknown, read.problem) == ([], "")
    assert " ".join(read.rest) == program


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("srun --time", "option '--time' requires an argument"),
        ("srun -N", "option requires an argument -- 'N'"),
        ("srun --label=1 a", "option '--label' doesn't allow an argument"),
        ("srun -ly a", "invalid option -- 'y'"),
        ("srun --cpus-per 2 a", "option '--cpus-per' is ambiguous; possibilities: '--cpus-per-gpu' '--cpus-per-task'"),
        ("torchrun --nnodes --standalone train.py", "option '--nnodes' requires an argument"),
    ],
)  # fmt: skip
def test_what_the_command_says_of_a_line_that_it_refuses(line: str, said: str):
    command, *words = line.split()
    assert read_text(command, words).problem == said


@pytest.mark.parametrize(
    ("line", "left_out", "program"),
    [
        ("srun --of-a-site=3 -n2 a", "--of-a-site=3", "a"),
        ("accelerate --num_proc 2 train.py", "--num_proc", "2 train.py"),  # accelerate takes no beginnings
        ("deepspeed --num-gpus 2 train.py", "--num-gpus", "2 train.py"),  # nor deepspeed a - for a _
    ],
)
def test_an_option_that_is_not_known_has_a_value_only_after_an_equals_sign(line, left_out, program):
    command, *words = line.split()
    read = read_text(command, words)
    assert (read.unknown, " ".join(read.rest)) == ([left_out], program)


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("mpiexec -n 4 -d 8 --cpu-bind depth a", "a"),  # PALS: Open MPI's -d has no value
        ("mpiexec -n 4 --map-by ppr:2:node -x A a", "a"),
        ("mpiexec -n 4 -genvall -perhost 2 a", "a"),
        ("mpirun -np 4 -ppn 2 -genv A 1 a", "a"),
        ("mpirun -d -np 2 a", "a"),
    ],
)
def test_a_line_of_mpi_is_read_as_the_family_that_knows_its_options(line: str, program: str):
    command, *words = line.split()
    read = read_mpi(command, [Text(word) for word in words], lambda word: False)
    assert (" ".join(read.rest), read.unknown) == (program, [])


@pytest.mark.parametrize(
    ("line", "families"),
    [
        ("-np 4 --map-by node a", ["openmpi", "hydra"]),
        ("-n 8 --ppn 4 --cpu-bind depth a", ["pals"]),
        ("--no-such-option a", []),
    ],
)
def test_whose_a_line_of_mpi_may_be(line: str, families: list[str]):
    assert families_of(line.split()) == families


def test_which_commands_launch():
    def words(line: str):
        return [Text(word) for word in line.split()]

    assert launch_of(COMMANDS, "accelerate", words("launch x.py")) == ("accelerate", ["x.py"])
    assert launch_of(COMMANDS, "accelerate", words("config")) is None
    assert launch_of(MODULES, "accelerate.commands.launch", words("x.py")) == ("accelerate", ["x.py"])
    assert launch_of(COMMANDS, "python", words("x.py")) is None
