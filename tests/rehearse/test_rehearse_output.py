"""Whole outputs of rehearsals: scripts that work, and the mistakes that people make."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from rankup.errors import RankupError
from rankup.findings.engine import fails
from rankup.findings.finding import Severity
from rankup.rehearse import sandbox
from rankup.rehearse.rehearse import Options
from rankup.rehearse.report import judged, report_of
from rankup.rehearse.request import Sizes
from rankup.rehearse.written_down import written_down
from rehearse.scripts import codes, rehearsed, text

pytestmark = pytest.mark.skipif(bool(sandbox.available()), reason="no user namespaces here")

TWO = ("--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=4", "--cpus-per-task=16")
FOUR = ("--nodes=2", "--ntasks-per-node=2", "--gpus-per-node=2", "--cpus-per-task=4")
HEAD = "export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1) MASTER_PORT=29500\n"
AGENT = "torchrun --nnodes=2 --nproc_per_node=4 --master_addr=$MASTER_ADDR --master_port=29500"
C10D = "torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=node1:29500"
PBS = ("-l select=2:ncpus=16:ngpus=4:mpiprocs={}", "-l place=scatter:excl", "-N train")


def pbs(processes: int) -> tuple[str, ...]:
    return tuple(line.format(processes) for line in PBS)


def test_srun_starts_an_agent_on_each_node(tmp_path: Path):
    report = rehearsed(
        tmp_path, HEAD + f"srun bash -c '{AGENT} --node_rank=$SLURM_NODEID train.py --lr 0.1'", TWO
    )
    assert text(report, tmp_path, 80) == dedent("""\
        Rehearsal of job.sh under SLURM: 2 nodes, 4 GPUs each, 16 CPUs each

        Launch 1: 8 processes by torchrun, started by srun, world size 8
          command   python train.py --lr 0.1
          folder    DIR
          meet at   node1:29500
          ranks by  torchrun
          variables CUDA_VISIBLE_DEVICES=0,1,2,3  MASTER_ADDR=node1  MASTER_PORT=29500
                    ROCR_VISIBLE_DEVICES=0,1,2,3

          host   node  rank  local  GPU  CPUs
          node1  0     0-3   0-3    0-3  16/4
          node2  1     4-7   0-3    0-3  16/4

        No findings.""")


@pytest.mark.repeated
@pytest.mark.parametrize(
    ("version", "severity"), [((22, 5), Severity.ERROR), ((23, 11), Severity.NOTE)], ids=["22.05", "23.11"]
)
def test_a_log_in_a_folder_that_is_not_there(tmp_path: Path, version, severity):
    """An old SLURM ends such a job without a word."""
    lines = ("--nodes=1", "--output=logs/%j.out")
    found = rehearsed(tmp_path, "srun python train.py", lines, slurm_version=version).findings
    assert [(one.code, one.severity) for one in found] == [("log-folder", severity)]
    (tmp_path / "logs").mkdir()
    assert rehearsed(tmp_path, "srun python train.py", lines, slurm_version=version).findings == []


def test_torchrun_on_the_head_alone(tmp_path: Path):
    report = rehearsed(tmp_path, HEAD + f"{AGENT} --node_rank=$SLURM_NODEID train.py", TWO)
    assert text(report, tmp_path, 80) == dedent("""\
        Rehearsal of job.sh under SLURM: 2 nodes, 4 GPUs each, 16 CPUs each

        Launch 1: 4 processes by torchrun, world size 8
          command   python train.py
          folder    DIR
          meet at   node1:29500
          ranks by  torchrun
          variables CUDA_VISIBLE_DEVICES=0,1,2,3  MASTER_ADDR=node1  MASTER_PORT=29500
                    ROCR_VISIBLE_DEVICES=0,1,2,3

          host   node  rank  local  GPU  CPUs
          node1  0     0-3   0-3    0-3  16/4

        error: torchrun expects 2 agents, and 1 is started; none on node2 [missing-agents]
          where: launch 1
          why:   The agents wait for each other until a time limit, and then end with an
                 error.
          hint:  start torchrun once on every node: srun --ntasks=2 --ntasks-per-node=1,
                 pbsdsh, or ssh
        warning: no process trains on node2: 1 of 2 nodes [idle-nodes]
          why:   Only srun, mpirun, pbsdsh, ssh and the like reach other nodes than the
                 first.
          hint:  start the training on all nodes, or ask for fewer
        1 error, 1 warning""")


RANKS = "export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID; exec python train.py"


@pytest.mark.slow
def test_srun_starts_one_task_for_each_gpu(tmp_path: Path):
    report = rehearsed(tmp_path, HEAD + f"srun bash -c '{RANKS}'", FOUR)
    assert text(report, tmp_path, 100) == dedent("""\
        Rehearsal of job.sh under SLURM: 2 nodes, 2 GPUs each, 8 CPUs each

        Launch 1: 4 processes by srun, world size 4
          command   python train.py
          folder    DIR
          meet at   node1:29500
          ranks by  RANK
          variables CUDA_VISIBLE_DEVICES=0,1  MASTER_ADDR=node1  MASTER_PORT=29500  ROCR_VISIBLE_DEVICES=0,1
                    WORLD_SIZE=4

          host   node  rank  local  GPU  CPUs
          node1  0     0-1   0-1    0-1  4
          node2  1     2-3   0-1    0-1  4

        No findings.""")


@pytest.mark.slow
def test_a_rank_that_is_expanded_in_the_batch_shell(tmp_path: Path):
    report = rehearsed(tmp_path, HEAD + f'srun bash -c "{RANKS}"', FOUR)
    shown = text(report, tmp_path, 200)
    assert "  node1  0     0 (2 times)  0 (2 times)  0 (2 times)  4\n" in shown
    assert "error: 4 processes have rank 0 [doubled-rank]\n" in shown
    assert codes(report) == {"doubled-rank", "shared-device", "idle-gpus"}


@pytest.mark.slow
def test_more_tasks_than_gpus(tmp_path: Path):
    directives = ("--nodes=1", "--ntasks-per-node=3", "--gpus-per-node=2")
    report = rehearsed(tmp_path, HEAD + f"srun bash -c '{RANKS}'", directives)
    assert codes(report) == {"no-such-device"}
    assert "1 of 3 processes find" in text(report, tmp_path, 200)


@pytest.mark.repeated
@pytest.mark.parametrize(("device", "fails_for_it"), [("rank", True), ("local", False)])
def test_a_gpu_that_the_program_names_and_the_node_lacks_fails_the_job(
    tmp_path: Path, device: str, fails_for_it: bool
):
    program = (
        "import os, torch, torch.distributed as dist\nrank = int(os.environ['SLURM_PROCID'])\n"
        f"local = int(os.environ['SLURM_LOCALID'])\ndist.init_process_group('nccl')\ntorch.cuda.set_device({device})\n"
    )
    directives = ("--nodes=2", "--ntasks-per-node=3", "--gpus-per-node=2")
    report = rehearsed(tmp_path, HEAD + "srun python train.py", directives, program=program)
    assert "no-such-device" in codes(report)
    assert fails(report.findings) is fails_for_it


@pytest.mark.slow
def test_mpirun_under_pbs(tmp_path: Path):
    body = (
        'cd "$PBS_O_WORKDIR"\nmodule load openmpi\nexport MASTER_ADDR=$(head -n1 $PBS_NODEFILE) MASTER_PORT=29500\n'
        "mpirun -np 8 --hostfile $PBS_NODEFILE --map-by ppr:4:node:PE=4 -x MASTER_ADDR -x MASTER_PORT bash -c '\n"
        "export RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK\n"
        "exec python train.py'"
    )
    report = rehearsed(tmp_path, body, pbs(4), scheduler="pbs")
    assert text(report, tmp_path, 100) == dedent("""\
        Rehearsal of job.sh under PBS: 2 nodes, 4 GPUs each, 16 CPUs each

        Launch 1: 8 processes by mpirun, world size 8
          command   python train.py
          folder    DIR
          meet at   node1:29500
          ranks by  RANK
          variables MASTER_ADDR=node1  MASTER_PORT=29500  OMP_NUM_THREADS=16  WORLD_SIZE=8

          host   node  rank  local  GPU  CPUs
          node1  0     0-3   0-3    0-3  4
          node2  1     4-7   0-3    0-3  4

        Not done, or not known:
          module load openmpi: sets nothing here

        No findings.""")


PBSDSH = """
export MASTER_ADDR=$(head -n1 $PBS_NODEFILE)
cat > "$PBS_O_WORKDIR/agent.sh" <<END
cd "$PBS_O_WORKDIR"
torchrun --nnodes=2 --nproc_per_node=4 --node_rank=\\$PBS_NODENUM --master_addr=$MASTER_ADDR train.py
END
pbsdsh -- bash "$PBS_O_WORKDIR/agent.sh"
"""


@pytest.mark.slow
def test_pbsdsh_starts_one_agent_for_each_line_of_the_node_file(tmp_path: Path):
    report = rehearsed(tmp_path, PBSDSH, pbs(1), scheduler="pbs")
    shown = text(report, tmp_path, 100)
    assert "Launch 1: 8 processes by torchrun, started by pbsdsh, world size 8\n" in shown
    assert "  node1  0     0-3   0-3    0-3  16/4\n  node2  1     4-7   0-3    0-3  16/4\n" in shown
    assert codes(report) == set()
    (tmp_path / "four").mkdir()
    four = rehearsed(tmp_path / "four", PBSDSH, pbs(4), scheduler="pbs")
    assert codes(four) == {"too-many-agents"}


def test_what_pbsdsh_starts_knows_nothing_of_the_scripts_variables(tmp_path: Path):
    shows = "echo [$SECRET_WORD$PBS_NODEFILE] $PBS_NODENUM $PWD"
    body = f"export SECRET_WORD=yes; cd $PBS_O_WORKDIR\npbsdsh -n 1 bash -c '{shows}'"
    report = rehearsed(tmp_path, body, pbs(1), scheduler="pbs")
    assert f"[] 1 {tmp_path}\n" in report.rehearsal.output  # its folder is the home


SSH = """
cd "$PBS_O_WORKDIR"; i=0; head=$(head -n1 $PBS_NODEFILE)
for host in $(awk '!seen[$0]++' $PBS_NODEFILE); do
  ssh $host "cd $PWD; torchrun --nnodes=2 --nproc_per_node=4 --node_rank=$i --master_addr=$head train.py" {}
  i=$((i + 1))
done
wait
"""


@pytest.mark.slow
def test_a_loop_of_ssh(tmp_path: Path):
    good = rehearsed(tmp_path, SSH.format("&"), pbs(1), scheduler="pbs")
    assert "  node1  0     0-3   0-3    0-3  16/4\n" in text(good, tmp_path) and codes(good) == set()
    (tmp_path / "bad").mkdir()
    bad = rehearsed(tmp_path / "bad", SSH.format(""), pbs(1), scheduler="pbs")
    assert codes(bad) == {"would-hang"}
    assert "error: the script waits for the ssh of node1 before it starts the others [would-hang]" in text(
        bad, tmp_path
    )


def test_ssh_in_a_loop_that_reads_hosts_takes_the_rest_of_them(tmp_path: Path):
    body = (
        'cd $PBS_O_WORKDIR\nwhile read host; do ssh $host "cd $PWD; torchrun train.py"; done <$PBS_NODEFILE'
    )
    assert codes(rehearsed(tmp_path, body, pbs(1), scheduler="pbs")) == {"takes-input", "idle-nodes"}


@pytest.mark.slow
def test_agents_with_addresses_of_their_own(tmp_path: Path):
    body = f"srun bash -c 'MASTER_ADDR=$(hostname); {AGENT} --node_rank=$SLURM_NODEID train.py'"
    report = rehearsed(tmp_path, body, TWO)
    assert codes(report) == {"different-endpoints"}
    assert "node1:29500, node2:29500" in text(report, tmp_path, 200)


MISTAKES = [
    ("srun torchrun --nproc_per_node=4 train.py", {"separate-worlds"}),
    ("srun bash -c 'torchrun --nnodes=2 --nproc_per_node=4 --node_rank=$SLURM_NODEID train.py'",
     {"local-endpoint"}),
    (f"export MASTER_ADDR=node2\nsrun bash -c '{AGENT} --node_rank=$SLURM_NODEID train.py'", {"wrong-head"}),
    (f"srun bash -c '{C10D} --rdzv_id=$SLURM_PROCID$RANDOM train.py'", {"different-endpoints"}),
    ("srun python train.py", {"independent-copies", "idle-gpus"}),
    ("export RANK=0 WORLD_SIZE=8\npython train.py", {"world-size-mismatch", "no-endpoint", "idle-nodes"}),
    (HEAD + f"srun bash -c '{AGENT} --node_rank=$SLURM_NODEID train.py' &", {"ended-too-early"}),
    (HEAD + f"srun bash -c '{AGENT} --node_rank=$SLURM_NODEID train.py' & wait", set()),
    (HEAD + f"srun bash -c '{AGENT} --node_rank=$SLURM_NODEID trian.py'", {"missing-program"}),
    (f"srun {C10D} $1 8", {"missing-program"}),
    (f"srun {C10D} $1", {"missing-program"}),
    (f"srun torchrun --help\nsrun {C10D} train.py", set()),
    ("srun apptainer exec image.sif torchrun --standalone --nproc_per_node=4 train.py", {"separate-worlds",
     "no-gpu"}),
    (f"export APPTAINER_NV=1\nsrun apptainer exec image.sif {C10D} train.py", set()),
    (f"module load lumi-bindings/1\nsrun singularity exec image.sif {C10D} train.py", set()),
    ("echo nothing", {"nothing-started"}),
    ("set -e\nfalse\nsrun python train.py", {"script-failed"}),
    ("srun ./run.sh", {"missing-file"}),
    (f"srun {C10D.replace('node1', '$HEAD_NODE')} train.py", {"no-endpoint"}),
    (f"cd $(git rev-parse --show-toplevel 2>/dev/null || pwd)\nsrun {C10D} train.py", set()),
]  # fmt: skip
# The same names once more, or none: the campaign has them.
ALIKE = [
    ("srun torchrun --nnodes=2 --nproc_per_node=4 --node_rank=$SLURM_NODEID train.py", {"doubled-node-rank",
     "local-endpoint"}),
    (HEAD + f"srun bash -c '{AGENT.replace('nnodes=2', 'nnodes=3')} --node_rank=$SLURM_NODEID train.py'",
     {"missing-agents"}),
    (HEAD + f"srun bash -c '{AGENT.replace('=4', '=6')} --node_rank=$SLURM_NODEID train.py'", {"no-such-device"}),
    (f"srun {C10D} --rdzv_id=$RANDOM train.py", set()),
    ("export WORLD_SIZE=1\nsrun bash -c 'RANK=$SLURM_PROCID python train.py'", {"rank-out-of-range", "idle-gpus"}),
    ("srun bash scripts/launch.sh", {"missing-file"}),
    (f"source env.sh\n{HEAD}srun {C10D} train.py", {"missing-file"}),
    (f"srun bash -c '{AGENT} --node_rank=$SLURM_NODEID train.py'", {"no-endpoint"}),
    ("export MASTER_PORT=1 MASTER_ADDR=\nsrun bash -c 'export RANK=$SLURM_PROCID WORLD_SIZE=2; python train.py'",
     {"no-endpoint", "idle-gpus"}),
    (f"{HEAD}srun {C10D} train.py\npkill -f train.py", set()),
    (f"source /opt/site/bin/activate\n{HEAD}srun {C10D} train.py\ndeactivate", {"not-here"}),
]  # fmt: skip


@pytest.mark.repeated
@pytest.mark.parametrize(
    ("body", "found"), [*MISTAKES, *(pytest.param(*each, marks=pytest.mark.campaign) for each in ALIKE)]
)
def test_a_mistake_has_a_name(tmp_path: Path, body: str, found: set[str]):
    assert codes(rehearsed(tmp_path, body, TWO)) == found


@pytest.mark.parametrize("shell", ["/bin/sh -l", "/bin/bash -l"])
def test_a_login_shell_finds_the_pretended_commands(tmp_path: Path, shell: str):
    report = rehearsed(tmp_path, f"srun {C10D} train.py", TWO, shell=shell)
    assert codes(report) == set() and "8 processes by torchrun" in text(report, tmp_path)


@pytest.mark.repeated
@pytest.mark.parametrize(
    ("start", "found"),
    [
        (f"srun {C10D} train.py", {"too-many-agents"}),
        ("srun torchrun --standalone --nproc_per_node=4 train.py", {"separate-worlds"}),
        (f"srun bash -c '{AGENT} --node_rank=$SLURM_NODEID train.py'", {"too-many-agents"}),
        (
            f'srun bash -c "{AGENT} --node_rank=$SLURM_NODEID train.py"',
            {"too-many-agents", "doubled-node-rank"},
        ),
    ],
)
def test_what_follows_from_too_many_agents_is_no_finding(tmp_path: Path, start: str, found: set[str]):
    directives = ("--nodes=2", "--ntasks-per-node=2", "--gpus-per-node=4", "--cpus-per-task=4")
    assert codes(rehearsed(tmp_path, HEAD + start, directives)) == found


@pytest.mark.slow
def test_a_program_that_reads_slurms_variables_has_ranks_by_them(tmp_path: Path):
    program = "import torch, os\nrank = int(os.environ['SLURM_PROCID'])\n"
    report = rehearsed(tmp_path, HEAD + "srun python train.py", FOUR, program=program)
    assert codes(report) == set()
    assert "  ranks by  SLURM_PROCID\n" in text(report, tmp_path)


@pytest.mark.repeated
@pytest.mark.parametrize(
    ("rank", "size", "found"),
    [("SLURM_PROCID", "SLURM_NTASKS", {"doubled-rank"}), ("RANK", "WORLD_SIZE", set())],
)
def test_workers_of_torchrun_inherit_slurms_rank(tmp_path: Path, rank: str, size: str, found: set[str]):
    program = (
        f"import os, torch.distributed as dist\nrank, world = int(os.environ['{rank}']), int(os.environ['{size}'])\n"
        "dist.init_process_group('nccl', rank=rank, world_size=world)\n"
    )
    body = "srun torchrun --standalone --nproc_per_node=4 train.py"
    report = rehearsed(tmp_path, body, ("--nodes=1", "--ntasks=1", "--gpus-per-node=4"), program=program)
    assert (codes(report), fails(report.findings)) == (found, bool(found))
    shown = text(report, tmp_path)
    assert f"4 processes by torchrun, started by srun, world size {1 if found else 4}\n" in shown
    assert f"  ranks by  {'SLURM_PROCID' if found else 'torchrun'}\n" in shown


#: Many centres' tutorials: the rank is SLURM's, and the script exports the size.
EXPORTED = "export WORLD_SIZE=$((SLURM_NNODES * SLURM_NTASKS_PER_NODE))\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "found"), [("srun python", set()), ("python", {"world-size-mismatch", "idle-nodes"})]
)
def test_an_exported_world_size_counts_for_a_program_that_reads_it(
    tmp_path: Path, start: str, found: set[str]
):
    program = (
        "import os, torch\ntorch.distributed.init_process_group('nccl', rank=int(os.environ['SLURM_PROCID']), "
        "world_size=int(os.environ['WORLD_SIZE']))\n"
    )
    report = rehearsed(tmp_path, HEAD + EXPORTED + f"{start} train.py", FOUR, program=program)
    assert codes(report) == found


@pytest.mark.slow
def test_a_step_waits_for_the_one_that_trains(tmp_path: Path):
    """Without --overlap a second step starts only after the first: a monitor that never watches."""
    body = HEAD + f"srun bash -c '{AGENT} --node_rank=$SLURM_NODEID train.py' &\nsleep 5; srun hostname\nwait"
    assert codes(rehearsed(tmp_path, body, TWO)) == {"step-waits"}


@pytest.mark.slow
def test_helpers_run_and_probes_see_the_pretended_gpus(tmp_path: Path):
    (tmp_path / "port.py").write_text("print(29000 + 11)\n")
    body = (
        "N=$(python -c 'import torch; print(torch.cuda.device_count())'); PORT=$(python port.py)\n"
        "M=$(nvidia-smi -L | wc -l); A=$(python - <<END\nprint('in')\nEND\n)\necho found $N $PORT $M $A\n"
        "torchrun --standalone --nproc_per_node=$N train.py"
    )
    report = rehearsed(tmp_path, body, ("--nodes=1", "--gpus-per-node=4"))
    assert "found 4 29011 4 in\n" in report.rehearsal.output
    assert len(report.launches[0].processes) == 4 and codes(report) == set()


def test_a_python_of_an_environment_is_caught_too(tmp_path: Path):
    import sys

    report = rehearsed(tmp_path, f"{sys.executable} train.py", ("--nodes=1",))
    assert [one.command for one in report.launches[0].processes] == ["python3 train.py"]


@pytest.mark.slow
def test_what_is_missing_is_learnt_also_where_the_script_sends_its_messages_to_a_file(tmp_path: Path):
    (tmp_path / "my.log").write_text("job.sh: line 9: /opt/of/another/job: No such file or directory\n")
    body = (
        "exec >>my.log 2>&1\nsource /opt/site/venv/bin/activate || exit 1\nsrun python train.py\ncd nowhere"
    )
    report = rehearsed(tmp_path, body, ("--nodes=1", "--ntasks=1"))
    assert report.rehearsal.pretended == ["/opt/site/venv/bin/activate"]
    assert codes(report) == {"not-here", "missing-file"}
    assert "nowhere: No such file" in report.rehearsal.output


@pytest.mark.slow
def test_what_is_not_on_this_machine_is_pretended_and_said(tmp_path: Path):
    body = (
        "module purge; source /opt/cluster/env/bin/activate; conda activate torch\ncd /scratch/alice/project\n"
        "/opt/cluster/env/bin/torchrun --standalone --nproc_per_node=2 train.py"
    )
    report = rehearsed(tmp_path, body, ("--nodes=1",))
    assert len(report.launches[0].processes) == 2
    assert codes(report) == {"not-here"}
    assert report.rehearsal.pretended == [
        "/opt/cluster/env/bin/activate", "/opt/cluster/env/bin/torchrun", "/scratch/alice/project",
    ]  # fmt: skip


@pytest.mark.repeated
@pytest.mark.parametrize(
    ("directives", "sizes"),
    [
        (("--nodes=1",), "1 node, 1 CPU"),
        (("--nodes=1", "--cpus-per-task=8", "--gpus-per-node=1"), "1 node, 1 GPU, 8 CPUs"),
    ],
)
def test_the_first_line_counts_in_english(tmp_path: Path, directives: tuple[str, ...], sizes: str):
    report = rehearsed(tmp_path, "python train.py", directives)
    assert report.lines(100)[0] == f"Rehearsal of job.sh under SLURM: {sizes}"


@pytest.mark.parametrize(
    ("array", "said"),
    [("3", "3: 1 from 3 to 3 by 1"), ("1-7:3", "1: 3 from 1 to 7 by 3")],
)
def test_a_task_of_an_array_knows_the_whole_array(tmp_path: Path, array: str, said: str):
    names = ("COUNT from", "MIN to", "MAX by", "STEP")
    body = f"echo $SLURM_ARRAY_TASK_ID: {' '.join(f'$SLURM_ARRAY_TASK_{name}' for name in names)}"
    assert f"{said}\n" in rehearsed(tmp_path, body, (f"--array={array}",)).rehearsal.output


@pytest.mark.repeated
@pytest.mark.parametrize(("option", "address"), [("", "node1"), ("--local_addr=127.0.0.1 ", "127.0.0.1")])
def test_the_ranks_of_one_agent_meet_at_its_own_address(tmp_path: Path, option: str, address: str):
    report = rehearsed(tmp_path, f"torchrun --standalone {option}--nproc_per_node=2 train.py", ("--nodes=1",))
    assert {one.meeting for one in report.launches[0].processes} == {f"{address}:(free port)"}


@pytest.mark.slow
def test_multi_prog_gives_each_task_its_program(tmp_path: Path):
    (tmp_path / "mp.conf").write_text(
        "# tasks\n0   python train.py --serve\n1,3 python train.py --place %o --task %t\n"
        "*   python train.py \\\n  'the rest'\n"
    )
    report = rehearsed(tmp_path, "srun --multi-prog mp.conf", ["--nodes=2", "--ntasks=5"])
    commands = {one.command for launch in report.launches for one in launch.processes}
    assert commands == {
        "python train.py --serve",
        "python train.py --place 0 --task 1",
        "python train.py --place 1 --task 3",
        "python train.py the rest",
    }
    assert not codes(report) & {"script-failed", "rank-out-of-range"}


def test_multi_prog_needs_a_program_for_each_task(tmp_path: Path):
    (tmp_path / "mp.conf").write_text("0 python train.py\n")
    report = rehearsed(tmp_path, "srun --multi-prog mp.conf", ["--nodes=1", "--ntasks=2"])
    assert "script-failed" in codes(report)
    assert "No task_id 1 in configuration file" in text(report, tmp_path)


@pytest.mark.slow
def test_a_server_beside_ranks_does_not_set_their_world_size(tmp_path: Path):
    (tmp_path / "mp.conf").write_text("0 python train.py --serve\n1-3 python train.py --rank %o\n")
    report = rehearsed(tmp_path, "srun --multi-prog mp.conf", ["--nodes=1", "--ntasks=4"])
    assert "rank-out-of-range" not in codes(report)


def test_a_heterogeneous_job_is_refused(tmp_path: Path):
    with pytest.raises(RankupError) as caught:
        rehearsed(tmp_path, "srun --het-group=1 python train.py", ("--nodes=1", "hetjob", "--nodes=2"))
    assert caught.value.code == "heterogeneous-job"


@pytest.mark.slow
def test_what_ray_starts_is_not_missed(tmp_path: Path):
    report = rehearsed(
        tmp_path, "srun -N1 -n1 -w node2 ray start --address node1:1 --block &\npython train.py", TWO
    )
    assert not codes(report) & {"idle-nodes", "idle-gpus"}
    assert any("Ray" in line for line in report.assumed)


@pytest.mark.slow
def test_an_image_whose_variable_a_module_sets(tmp_path: Path):
    report = rehearsed(tmp_path, "srun singularity exec $SIF python -u train.py", FOUR)
    assert [len(launch.processes) for launch in report.launches] == [4]


@pytest.mark.slow
def test_a_command_that_only_the_image_has_is_not_an_error(tmp_path: Path):
    report = rehearsed(tmp_path, "srun singularity exec --nv torch.sif python-of-the-image train.py", FOUR)
    (finding,) = [finding for finding in report.findings if finding.code == "nothing-started"]
    assert finding.severity is Severity.WARNING


PALS = "mpiexec -n 8 --ppn 4 --cpu-bind depth python train.py"


@pytest.mark.slow
def test_mpiexec_is_taken_for_that_whose_options_it_gets(tmp_path: Path):
    program = "import torch\nfrom mpi4py import MPI\n"
    report = rehearsed(tmp_path, f"cd $PBS_O_WORKDIR\n{PALS}", pbs(4), scheduler="pbs", program=program)
    assert codes(report) == set() and len(report.launches[0].processes) == 8
    assert "  mpiexec is taken for that of PALS (HPE Cray), whose options it gets" in report.lines(100)


def test_a_hint_names_the_launcher_of_the_job_and_its_variables(tmp_path: Path):
    def said(body: str) -> str:
        report = rehearsed(tmp_path, body, ("-l select=2:ncpus=8:ngpus=2",), scheduler="pbs", mpi="pals")
        return " ".join(text(report, tmp_path).split())

    agents = said("mpiexec -n 4 --ppn 2 torchrun --nnodes=2 --nproc_per_node=2 --rdzv_backend=c10d train.py")
    assert "start torchrun once on every node: mpiexec -n 2 --ppn 1" in agents
    ranks = said("mpiexec -n 4 --ppn 2 python train.py")
    assert "mpiexec bash -c 'RANK=$PALS_RANKID … exec python …'" in ranks
    assert "it needs RANK, and ends with an error" in ranks and "whole model" not in ranks


def test_an_option_of_pals_is_one_error_under_open_mpi(tmp_path: Path):
    report = rehearsed(tmp_path, PALS, pbs(4), scheduler="pbs", mpi="openmpi")
    (finding,) = report.findings
    assert finding.code == "bad-mpirun" and "--mpi pals" in finding.message


@pytest.mark.slow
def test_a_missing_helper_is_named_with_its_line(tmp_path: Path):
    (finding,) = rehearsed(tmp_path, "bash helper.sh\npython train.py", ["--gpus-per-node=1"]).findings
    assert (finding.message, finding.severity) == ("helper.sh is not there", Severity.WARNING)
    (finding,) = rehearsed(tmp_path, "set -e\nsource env.sh\npython train.py").findings
    assert (finding.message, finding.place, finding.severity) == (
        "env.sh is not there",
        "job.sh:3",
        Severity.ERROR,
    )


def test_a_command_that_only_the_site_has_may_start_the_training(tmp_path: Path):
    (finding,) = rehearsed(tmp_path, "run-on-all-gpus train.py").findings
    assert (finding.code, finding.severity) == ("nothing-started", Severity.WARNING)
    assert "run-on-all-gpus" in finding.message


@pytest.mark.slow
def test_uv_run_starts_the_program_and_data_of_the_cluster_are_pretended(tmp_path: Path):
    body = "set -e\ncp /network/data/images.tar $TMPDIR/\nuv run --with torch python train.py"
    report = rehearsed(tmp_path, body, ["--gpus-per-node=1"])
    assert [one.command for launch in report.launches for one in launch.processes] == ["python train.py"]
    assert (report.rehearsal.pretended, codes(report)) == (["/network/data/images.tar"], {"not-here"})


def test_a_script_is_submitted_from_the_folder_of_its_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scripts").mkdir()
    report = rehearsed(tmp_path / "scripts", "python train.py", program="")
    assert {one.folder for one in report.launches[0].processes} == {str(tmp_path)}


ANSWERS = {
    "hostname -I": "10.0.0.12 ",
    "ip -o -4 addr show dev ib0": "2: ib0    inet 10.0.0.12/16 brd 10.0.255.255 scope global ib0",
    "ifconfig ib0 | awk '/inet/ {print $2}'": "10.0.0.12",
    "scontrol show hostlist node1,node2": "node[1-2]",
    "scontrol show job | grep -o 'NodeList=.*'": "NodeList=node[1-2]",
    "squeue -h -j 1 -o '%N %D'": "node[1-2] 2",
    "sbatch --parsable next.sh": "4712",
    "conda info --base": "/opt/conda",
}


@pytest.mark.slow
def test_commands_of_the_cluster_answer(tmp_path: Path):
    body = "\n".join(f'echo "[$({command})]"' for command in ANSWERS)
    report = rehearsed(tmp_path, body, ["--nodes=2"], program="")
    said = [line for line in report.rehearsal.output.splitlines() if line.startswith("[")]
    assert said == [f"[{answer}]" for answer in ANSWERS.values()]


def test_a_pbs_script_needs_no_first_line(tmp_path: Path):
    (tmp_path / "job.sh").write_text(
        "#PBS -l select=1:ngpus=2\n[[ -n $PBS_JOBID ]] && torchrun --standalone x.py\n"
    )
    report = report_of(
        tmp_path / "job.sh", Sizes(), Options(), {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    )
    assert [len(launch.processes) for launch in report.launches] == [1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "found"),
    [
        ("dist.init_process_group('nccl', rank=rank, world_size=3)", {"rank-out-of-range"}),
        ("dist.init_process_group('nccl', rank=rank, world_size=8)", {"world-size-mismatch"}),
        ("dist.init_process_group('nccl')\ntorch.cuda.set_device(rank)", {"no-such-device"}),
        ("dist.init_process_group('nccl')\ntorch.cuda.set_device(0)", {"shared-device", "idle-gpus"}),
        ("dist.init_process_group('nccl')\ntorch.cuda.set_device(rank % 2)", set()),
    ],
)
def test_what_the_program_writes_down_counts(tmp_path: Path, program: str, found: set[str]):
    head = "import os, torch, torch.distributed as dist\nrank = int(os.environ['SLURM_PROCID'])\n"
    assert codes(rehearsed(tmp_path, HEAD + "srun python train.py", FOUR, program=head + program)) == found


@pytest.mark.parametrize(
    ("line", "device"),
    [
        ("device = torch.device(f'cuda:{rank}' if cuda else 'cpu')", "rank"),
        ("device = torch.device('cuda', rank) if cuda else torch.device('cpu')", "rank"),
        ("device = f'cuda:{rank}' if cuda else 'cpu'\nmodel.to(device)", "rank"),
        (
            "ids = [rank] if cuda else None\nnn.parallel.DistributedDataParallel(model, device_ids=ids)",
            "rank",
        ),
        ("device = torch.device('cuda', rank)\ntorch.cuda.set_device(device)", "rank"),
        ("torch.cuda.set_device(local)\nwhere = {'cuda:0': f'cuda:{rank}'}", None),
        ("device = torch.device(f'cuda:{local}' if cuda else 'cpu')", None),
        ("device = torch.device('cuda' if cuda else 'cpu')", None),
        ("device = torch.device('cuda:0' if cuda else 'cpu')", 0),
    ],
)
def test_the_device_is_what_the_program_takes_where_there_are_gpus(tmp_path: Path, line: str, device: object):
    program = tmp_path / "train.py"
    program.write_text(
        "import os, torch, torch.distributed as dist\nfrom torch import nn\ncuda = torch.cuda.is_available()\n"
        "dist.init_process_group('nccl' if cuda else 'gloo')\n"
        f"rank, local = dist.get_rank(), int(os.environ['LOCAL_RANK'])\nmodel = nn.Linear(4, 1)\n{line}\n"
    )
    assert written_down(str(program)).device == device


@pytest.mark.repeated
@pytest.mark.parametrize(("last", "found"), [("kill $!", set()), ("wait", set()), ("", {"ended-too-early"})])
def test_a_real_training_that_the_script_ends_or_awaits_is_not_left_behind(
    tmp_path: Path, last: str, found: set[str]
):
    program = "import time\nif False:\n    import torch\nopen('ready', 'w').close()\ntime.sleep({})\n"
    body = f"python train.py & until [ -e ready ]; do sleep 0.1; done\n{last}"
    seconds = 1 if last == "wait" else 60
    report = rehearsed(tmp_path, body, ("--nodes=1",), program=program.format(seconds), for_real=True)
    assert codes(report) == found


@pytest.mark.repeated
@pytest.mark.parametrize(
    ("start", "program"),
    [
        ("srun python", "import torch.multiprocessing as mp\nmp.spawn(work, nprocs=4)\n"),
        ("python", "import lightning as L\nL.Trainer(devices=4)\n"),
        ("python", "import torch\nmodel = torch.nn.DataParallel(model)\n"),
    ],
)
def test_ranks_that_the_program_makes_are_not_counted(tmp_path: Path, start: str, program: str):
    report = rehearsed(
        tmp_path, HEAD + f"{start} train.py", ("--nodes=1", "--gpus-per-node=4"), program=program
    )
    assert codes(report) == set()
    assert "  ranks by  the program itself" in report.lines(100)


@pytest.mark.slow
def test_gpus_that_nobody_asks_for_are_said(tmp_path: Path):
    directives, body = (
        ("-l select=1:system=polaris",),
        "cd $PBS_O_WORKDIR\ntorchrun --nproc_per_node=4 train.py",
    )
    report = rehearsed(tmp_path, body, directives, scheduler="pbs")
    assert "no GPU, since the directives ask for none (--gpus-per-node, --site)" in report.assumed
    report = rehearsed(tmp_path, body, directives, scheduler="pbs", sizes=Sizes(gpus_per_node=4))
    assert "the directives ask for no GPU; 4 on each node are rehearsed" in report.assumed


def test_pbs_without_select_has_the_sizes_of_the_job(tmp_path: Path):
    body = "torchrun --nnodes=$PBS_NNODES --nproc_per_node=$((PBS_NGPUS / PBS_NNODES)) train.py"
    directives = ("-l ncpus=48,ngpus=4", "-l wd")
    report = rehearsed(tmp_path, body, directives, scheduler="pbs")
    job = report.rehearsal.scenario.allocation
    assert (job.cpus, job.gpus) == ((48,), (4,))
    assert [len(launch.processes) for launch in report.launches] == [4]
    assert "missing-program" not in codes(report)  # -l wd: it starts in the folder of its submission


def test_sizes_on_accelerates_command_line_need_no_file(tmp_path: Path):
    body = "accelerate launch --config_file there.yaml --num_machines 1 --num_processes 4 train.py"
    assert "bad-launcher-option" not in codes(rehearsed(tmp_path, body, ("--gpus-per-node=4",)))


@pytest.mark.slow
def test_a_host_file_that_the_job_writes_is_there(tmp_path: Path):
    body = (
        'mkdir run\nfor host in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do echo "$host slots=2"; done '
        "> run/hosts\ndeepspeed --hostfile=run/hosts train.py"
    )
    report = rehearsed(tmp_path, body, ["--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=2"])
    assert codes(report) == set()
    assert [(one.host, one.rank) for launch in report.launches for one in launch.processes] == [
        ("node1", 0), ("node1", 1), ("node2", 2), ("node2", 3),
    ]  # fmt: skip


def test_a_program_of_the_cluster_is_not_called_missing(tmp_path: Path):
    report = rehearsed(
        tmp_path, "srun python /project/lab/code/train.py", ["--ntasks=1", "--gpus-per-node=1"]
    )
    assert codes(report) == {"not-here"}


@pytest.mark.slow
def test_a_script_that_was_still_starting_programs_did_not_hang(tmp_path: Path):
    report = rehearsed(tmp_path, "srun python train.py", ["--nodes=2", "--ntasks=2", "--gpus-per-node=1"])
    last = max(event["time"] for event in report.rehearsal.events if "time" in event)
    since = last - report.rehearsal.scenario.started
    for seconds, found in ((since * 1.1, {"not-finished"}), (since * 10, {"would-hang"})):
        ended = replace(report.rehearsal, ended_by="timeout", seconds_allowed=seconds)
        assert codes(judged(Path("job.sh"), ended, [])) & {"not-finished", "would-hang"} == found


@pytest.mark.slow
def test_an_error_that_is_only_likely_says_so(tmp_path: Path):
    directives = ["--nodes=2", "--ntasks=2", "--gpus-per-node=1"]
    program = "import os, torch\nos.environ['RANK'] = os.environ['SLURM_PROCID']\n"
    report = rehearsed(
        tmp_path, "export MASTER_ADDR= MASTER_PORT=1\nsrun python train.py", directives, program=program
    )
    assert "[no-endpoint, likely]" in text(report, tmp_path) and not fails(report.findings)


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_folder_of_the_image_is_pretended_for_each_shell(tmp_path: Path, shell: str):
    body = f"srun --container-image=/img.sqsh {shell} -c 'cd /of-the-image && python {tmp_path}/train.py'"
    report = rehearsed(tmp_path, body, ("--nodes=1",))
    assert codes(report) == {"not-here"} and len(report.launches) == 1


def test_a_node_by_the_name_of_its_fast_network_is_a_note(tmp_path: Path):
    body = "srun torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$(hostname){}:29500 train.py"
    for suffix, severity in (("i", Severity.NOTE), ("-ib", Severity.NOTE), ("2", Severity.WARNING)):
        report = rehearsed(tmp_path, body.format(suffix), ("--nodes=2", "--ntasks-per-node=1"))
        assert [(one.code, one.severity) for one in report.findings] == [("unknown-endpoint", severity)]


def test_a_program_that_is_told_the_name_of_a_launchers_variable_reads_it(tmp_path: Path):
    program = "import os, sys, torch\nrank = os.environ[sys.argv[1]]\ntorch.distributed.barrier()\n"
    for word, found in (("PMI_RANK", set()), ("no", {"independent-copies"})):
        body = f"cd $PBS_O_WORKDIR; mpiexec -ppn 1 python train.py {word}"
        report = rehearsed(tmp_path, body, ("-l select=2",), scheduler="pbs", program=program, mpi="hydra")
        assert codes(report) == found


def test_without_directives_one_node_is_assumed_aloud(tmp_path: Path):
    assert any("one is rehearsed" in line for line in rehearsed(tmp_path, "python train.py").assumed)
