"""Functions of a job's script, each alone: the nodes of the next attempt under SLURM, and ranks that train alone."""

from __future__ import annotations

import os
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

SAY = 'say() { echo "said: $*"; }\n'


def bash(parts: list[str], text: str, **env: str) -> list[str]:
    """The lines that ``text`` prints after these parts of a script."""
    source = "".join(files("rankup.script").joinpath("parts", name).read_text() for name in parts)
    done = subprocess.run(
        ["bash", "-c", SAY + source + text],
        env={"PATH": "/usr/bin:/bin", **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr, done.stderr
    return done.stdout.splitlines()


LAUNCH = "srun: error: Task launch for StepId=1.0 failed on node node2: Communication connection failure\n"
FAILURE = "srun: error: Node failure on node2\nsrun: Force Terminated StepId=1.0\n"


@pytest.mark.parametrize(
    ("log", "state", "lost"),
    [
        (FAILURE, "code=137", ""),  # SLURM requeues the job
        (FAILURE, "code=137 USED=node1,node2", "node2"),
        (LAUNCH + LAUNCH.replace("node2", "node3"), "code=233", "node2 node3"),
        (LAUNCH, "code=0", ""),
        (LAUNCH, "code=233 called=yes", ""),  # the job was asked to end
        ("rank 0 said: " + LAUNCH, "code=1", ""),
    ],
)
def test_a_node_on_which_srun_could_start_nothing_is_lost_and_one_that_a_job_with_spares_loses(
    tmp_path: Path, log: str, state: str, lost: str
):
    path = tmp_path / "job.log"
    path.write_text("srun: error: Task launch for StepId=0.0 failed on node old: of an attempt before\n")
    began = path.stat().st_size
    path.write_text(path.read_text() + log)
    text = f'scontrol() {{ echo "$3"; }}\n{state}\nlog_began={began}\nfind_lost_nodes\necho "lost: $lost"\n'
    env = {"RUN": str(tmp_path), "log_file": str(path), "called": "", "terminated": ""}
    assert bash(["slurm_lost_nodes.sh"], text, **env)[-1] == f"lost: {lost}"


@pytest.mark.parametrize(
    ("bad", "now"),
    [
        ("n2", "n1,n3 spare: n4"),
        ("n2 n4", "n1,n3 spare: "),
        ("n4", "n1,n2 spare: n3"),  # it was a spare one
        ("n2 n3 n4", "said: no spare node can replace: n2 n3 n4"),
        ("n1", "said: no spare node can replace: n1"),  # the script runs there
    ],
)
def test_spare_nodes_replace_bad_ones_but_not_the_first(bad: str, now: str):
    text = (
        "HOSTS=(n1 n2 n3 n4)\nuse_nodes 2\n"
        f'if replace_nodes {bad}; then echo "$USED spare: ${{SPARES[*]}}"; fi\n'
    )
    assert bash(["spare_nodes.sh"], text)[-1] == now


@pytest.mark.parametrize(
    ("lost", "end"),
    [
        ("", "ends"),
        ("n2", "attempt on n1,n3"),
        ("n9", "ends"),  # of another job: the same nodes would do the same again
        ("n2 n3", "ends"),
    ],
)
def test_another_attempt_begins_only_on_other_nodes(lost: str, end: str):
    text = (
        'begin_attempt() { echo "attempt on $USED"; }\n'
        f'HOSTS=(n1 n2 n3)\nlost="{lost}"\nuse_nodes 2\ngo_on_without_lost || echo ends\n'
    )
    assert bash(["spare_nodes.sh"], text)[-1] == end


@pytest.mark.parametrize(
    ("spares", "broken", "end"),
    [
        ("use_nodes 2", "n2", "goes on with n1,n3"),
        ("use_nodes 2", "", "finish failed 1"),  # it is no single node's fault
        ("use_nodes 3", "n2", "finish failed 1"),
        ("", "n2", "finish failed 1"),
    ],
)
def test_nodes_that_the_doctor_finds_broken_are_replaced_where_the_job_has_others(
    tmp_path: Path, spares: str, broken: str, end: str
):
    python = """python() {
      case "$*" in
        *" bad-nodes "*) [ -z "$BROKEN" ] || echo "$BROKEN 9999999999 ada broken" >"$5" ;;
        *) echo '"verdict": "broken"' >"$RUN/doctor.json" ;;
      esac
    }
    finish() { echo "finish $*"; exit; }
    """
    text = f'{python}\nHOSTS=(n1 n2 n3)\n{spares}\npreflight python 4\necho "goes on with $USED"\n'
    said = bash(["spare_nodes.sh", "preflight.sh"], text, RUN=str(tmp_path), BROKEN=broken)
    assert said[-1] == end


SCONTROL = """scontrol() {
  echo "scontrol $*"
  case $1 in --oneliner) echo "JobId=7 ReqNodeList=(null) ExcNodeList=OWN Features=" ;; esac
}
"""


@pytest.mark.parametrize(
    ("lost", "noted", "own", "left_out"),
    [
        (" n1 n2", "n3 9999999999 ada bad\nn4 1 ada long ago\n", "n9", "n1,n2,n3,n9"),
        ("", "n3 9999999999 ada bad\n", "(null)", "n3"),
        ("n1", "", "(null)", "n1"),
        ("", "", "(null)", ""),
    ],
)
def test_a_requeue_leaves_bad_nodes_out(tmp_path: Path, lost: str, noted: str, own: str, left_out: str):
    (tmp_path / "bad").write_text(noted)
    said = bash(
        ["slurm.sh", "bad_nodes.sh"],
        SCONTROL.replace("OWN", own) + "requeue\n",
        **{"JOB": "7", "lost": lost, "BAD_NODES": str(tmp_path / "bad")},
    )
    update = [f"scontrol update JobId=7 ExcNodeList={left_out}"] if left_out else []
    assert said == ["scontrol requeue 7", *update]


@pytest.mark.parametrize(("ranks", "said"), [(0, 0), (1, 0), (3, 1)])
def test_ranks_that_each_train_a_model_of_their_own_are_told_once(tmp_path: Path, ranks: int, said: int):
    for rank in range(ranks):
        (tmp_path / f"trained-alone-{rank}").touch()
    lines = bash(["watch.sh"], "told=\ntell_separate_models\ntell_separate_models\n", RUN=str(tmp_path))
    assert len([line for line in lines if f"{ranks} processes each train their own model" in line]) == said


@pytest.mark.parametrize(
    ("written", "seconds", "wrote"),
    [
        (5 << 20, 60, "yes"),
        (5 << 20, 4 * 3600, ""),  # 1.1 MB an hour were measured for a line a second
        (1 << 30, 24 * 3600, "yes"),
        (49_152, 80, ""),
    ],
)
def test_hours_of_output_are_no_progress(written: int, seconds: int, wrote: str):
    stand_ins = f"marked() {{ echo 1 2; }}\ncat() {{ echo 'write_bytes: {written}'; }}\n"
    assert bash(["progress.sh"], f'{stand_ins}SECONDS={seconds}\nsee_writes\necho "$wrote"\n') == [wrote]


@pytest.mark.skipif(os.getuid() != 0, reason="gives a file to another user")
@pytest.mark.parametrize(("owner", "progress"), [(0, True), (65534, False)])
def test_what_another_user_writes_in_the_folder_is_not_progress(tmp_path: Path, owner: int, progress: bool):
    run = tmp_path / "runs" / "1"
    run.mkdir(parents=True)
    (run / "attempts").touch()
    os.utime(run / "attempts", (1, 1))
    (tmp_path / "last.ckpt").touch()
    os.chown(tmp_path / "last.ckpt", owner, owner)
    text = f"cd {tmp_path}\nPLACES=() SAVES=() STOP_BEFORE=60 wrote=\nmade_progress && echo progress\n"
    lines = bash(["progress.sh"], text, RUN=str(run), RUNS=str(tmp_path / "runs"))
    assert lines == ["progress"] * progress


@pytest.mark.parametrize(
    ("file", "progress"),
    [
        ("neighbour.pt", False),
        ("my models/epoch-1.pt", True),
        ("my models/epoch-1/rank-0.bin", True),  # a folder that is a checkpoint
        ("runs/1/snapshots/step-5/rank-0.pt", True),
    ],
)
def test_with_saves_no_other_file_is_progress(tmp_path: Path, file: str, progress: bool):
    run = tmp_path / "runs" / "1"
    run.mkdir(parents=True)
    (run / "attempts").touch()
    os.utime(run / "attempts", (1, 1))
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).touch()
    text = f"cd {tmp_path}\nPLACES=() SAVES=('my models/epoch-*') STOP_BEFORE=60 wrote=yes\n"
    lines = bash(
        ["progress.sh"], text + "made_progress && echo progress\n", RUN=str(run), RUNS=str(run.parent)
    )
    assert lines == ["progress"] * progress


# Really printed, in this order: by a torchrun that waits for another node, a rank there, and the torchrun of that node.
APART = Path(__file__).parents[1] / "explain/logs/nodes-end-apart/job.log"


def test_an_agent_whose_ranks_have_ended_well_leaves_no_stack_in_the_log():
    quiet = files("rankup.node_launchers").joinpath("agent.sh").read_text() + "quiet\n"
    told = "Traceback (most recent call last):\n  File x\ntorch.SignalException: Process 10 got signal: 15\n"
    failed = "Traceback (most recent call last):\n  File x\nValueError: 1\n"
    text = APART.read_text() + told + failed
    said = subprocess.run(
        ["bash", "-c", quiet], input=text, stderr=subprocess.PIPE, text=True, check=True
    ).stderr
    assert [line.split("] ")[0].split(".")[0] for line in said.splitlines() if line] == [
        *("[rank 0", "[rank 1", "[W1127 19:44:11", "[W1127 19:44:11", "[rank 1", "[W1127 19:44:29"),
        *failed.splitlines(),
    ]
