"""Rendered scripts for PBS and for this machine, run by bash: PBS's own commands are small stand-ins on PATH.

What the stand-ins do is what the real ones were seen to do: pbsdsh starts its task with an empty environment in
another folder, and ends with 0 whatever the task did. At TERM it passes that on to the task's session and is gone;
pbs_tmrsh is gone without passing it on. What a task of either prints is PBS's: it goes to the job's own output, which
is seen after its end, and never through these commands.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import psutil
import pytest

from rankup.batch.status import status_of
from rankup.batch.store import SubmittedRun
from rankup.core.rundir import RunDir
from rankup.errors import RankupError
from rankup.run.markers import read_markers
from rankup.schedulers.base import JobState
from rankup.script.render import render
from rankup.sites.lookup import find_site
from rankup.sites.site import Mpi
from rankup.spec.jobspec import JobSpec

pytestmark = pytest.mark.usefixtures("warm_python")

PBSDSH = """#!/bin/bash
printf "%s\\n" "$*" >>"$FAKES/pbsdsh.log"
shift 3   # -n LINE --
cd /
env -i FAKES="$FAKES" PATH=/usr/bin:/bin PBS_NODENUM=9 setsid "$@" >>"$FAKES/spool" 2>&1 &
task=$!
trap 'echo "pbsdsh: killing task 0x00000000 signal 15"; kill -TERM -- "-$task"; exit 1' TERM
wait $task
code=$?
[ $code -le 128 ] || code=$((code + 128))   # PBS's way to say by which signal
[ $code = 0 ] || echo "pbsdsh: task 0x00000000 exit status $code"
exit 0
"""
QSUB = """#!/bin/bash
printf '%s\\n' "$@" >>"$FAKES/qsub.log"
[ -t 0 ] || cat >>"$FAKES/qsub.stdin"
echo 8.head
"""
# The clock stands still, and goes on when a test says so.
DATE = """#!/bin/bash
if [ "$*" = +%s ] && [ -e "$FAKES/clock" ]; then exec cat "$FAKES/clock"; fi
exec "$(command -v -p date)" "$@"
"""
# Jobs that wait for the one that runs: two for its success, one of them also for another one; its successor and one
# more for its end. Lines are broken as PBS breaks them.
QSTAT = """#!/bin/bash
[ -z "$WALLTIME" ] || printf '    Resource_List.walltime = %s\\n' "$WALLTIME"
case $2 in
7.head) depend='beforeok:21.head@head:22.head@he\n\tad,beforeany:8.head@head:23.head@head' ;;
21.head) depend=afterok:7.head@head ;;
22.head) depend=afterok:17.head@head:7.head@head ;;
23.head) depend=afterany:7.head@head ;;
esac
printf "Job Id: $2\n    Job_Name = job\n    depend = $depend\n    Error_Path = head:/e\n"
"""
QALTER = """#!/bin/bash
echo "$*" >>"$FAKES/qalter.log"
"""
# As the real one words it; which nodes are down is the test's.
PBSNODES = """#!/bin/bash
printf '%s\\n     Mom = %s\\n     state = %s\\n' "$1" "$1" "$(cat "$FAKES/state-$1" 2>/dev/null || echo free)"
"""
PBS_TMRSH = """#!/bin/bash
echo "$1" >>"$FAKES/pbs_tmrsh.log"
shift
env -i PATH=/usr/bin:/bin FAKES="$FAKES" setsid "$@" >>"$FAKES/spool" 2>&1 &
wait $!
"""
SSH = '#!/bin/bash\nexec env -i PATH=/usr/bin:/bin FAKES="$FAKES" bash -c "${@: -1}"\n'
# A SLURM of one node whose controller does not answer squeue.
SLURM = {
    "squeue": "#!/bin/bash\nexit 1\n",
    "scontrol": "#!/bin/bash\necho localhost\n",
    "srun": """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
"$@" &
echo $! >"$FAKES/task"
trap 'kill -KILL $!; exit 143' TERM # as the real one
wait $!
""",
    "scancel": """#!/bin/bash
echo "$*" >>"$FAKES/scancel.log"
kill -TERM "$(cat "$FAKES/task")"
""",
}
# Two ranks on one host; like launchers do, it ends with the code of a rank that it has ended itself.
MPIRUN = """#!/bin/bash
while [ "$1" != bash ]; do shift; done
export OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2
for i in 0 1; do OMPI_COMM_WORLD_RANK=$i OMPI_COMM_WORLD_LOCAL_RANK=$i setsid "$@" & pids+=($!); done
wait -n && wait -n && exit 0
for pid in "${pids[@]}"; do kill -TERM -- "-$pid"; done 2>/dev/null
(sleep 5; for pid in "${pids[@]}"; do kill -KILL -- "-$pid"; done) >/dev/null 2>&1 & # as the real one
killer=$!
wait "${pids[@]}"
kill "$killer"
exit 143
"""
MPIEXEC = """#!/bin/bash
for i in 0 1; do OMPI_COMM_WORLD_RANK=$i "${@:(-3)}" & pids+=($!); done
code=0
for pid in "${pids[@]}"; do wait "$pid" || code=1; done
exit $code
"""


class Job:
    """One job of a stand-in PBS, or of no scheduler: its script and its run directory."""

    def __init__(self, tmp_path: Path, site: str = "pbs", **values: Any) -> None:
        self.folder = tmp_path / "pro ject"  # nothing may break at a blank
        self.fakes = tmp_path / "fakes"
        for path in (self.folder, self.fakes):
            path.mkdir(exist_ok=True)
        fakes = {
            "pbsdsh": PBSDSH,
            "date": DATE,
            "qsub": QSUB,
            "qstat": QSTAT,
            "qalter": QALTER,
            "pbsnodes": PBSNODES,
            "pbs_tmrsh": PBS_TMRSH,
            "ssh": SSH,
            "mpiexec": MPIEXEC,
            "mpirun": MPIRUN,
            **SLURM,
        }
        for name, text in fakes.items():
            (self.fakes / name).write_text(text)
            (self.fakes / name).chmod(0o755)
        # Two names of this machine; each stands twice, as with mpiprocs=2.
        (self.fakes / "nodes").write_text("localhost\nlocalhost\n127.0.0.1\n127.0.0.1\n")
        values = {
            "name": "job",
            "folder": self.folder,
            "python": sys.executable,
            "launcher": "torchrun",
            **values,
        }
        self.spec = JobSpec.model_validate(values)
        self.run = RunDir.create(self.folder / "runs", "job")
        self.script = self.run.path / "job.sh"
        self.script.write_text(render(self.spec, find_site(site, {}, tmp_path), self.run.path))

    def start(self, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        given = {
            "PATH": f"{self.fakes}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "FAKES": str(self.fakes),
            "PBS_JOBID": "7.head",
            "PBS_NODEFILE": str(self.fakes / "nodes"),
            "SECRET_OF_THE_SCRIPT": "two\nlines",
            "NEWLINE": "\n",
            **(env or {}),
        }
        return subprocess.Popen(["bash", self.script], env=given, cwd="/", start_new_session=True)

    def execute(self, env: Mapping[str, str] | None = None) -> int:
        return self.start(env).wait(timeout=120)

    def execute_until_time_is_up(self, said: str, env: Mapping[str, str] | None = None) -> int:
        """Its time is up when the program has said something, however long that takes."""
        now = int(time.time())
        (self.fakes / "clock").write_text(f"{now}\n")
        process = self.start(env)
        while not (self.run.logs / "job.log").exists() or said not in self.log:
            assert process.poll() is None
            time.sleep(0.05)
        assert self.spec.time is not None and self.spec.stop_before is not None
        new = self.fakes / "clock.new"
        new.write_text(f"{now + self.spec.time - self.spec.stop_before // 4}\n")
        new.rename(self.fakes / "clock")
        return process.wait(timeout=240)

    def alive(self) -> list[psutil.Process]:
        """What runs in the job's folder, and still does a moment later: what was killed just now is not a leftover."""
        found = [p for p in psutil.process_iter(["cwd"]) if p.info["cwd"] == str(self.folder)]
        _, alive = psutil.wait_procs(found, timeout=1 if found else 0)
        return [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]

    def clean_up(self) -> None:
        """What a scheduler does behind every job."""
        for process in self.alive():
            process.kill()

    def wait_for_guards(self) -> None:
        """Until those are gone that see to it that an agent leaves nothing: they look every two seconds."""
        (mark,) = re.findall(r'RANKUP_MARK="([0-9.]+/)"', (self.folder / "agent-0.sh").read_text())
        while any(
            f"RANKUP_MARK={mark}" in " ".join(p.info["cmdline"] or ())
            for p in psutil.process_iter(["cmdline"])
        ):
            time.sleep(0.1)

    @property
    def log(self) -> str:
        return (self.run.logs / "job.log").read_text()

    def __getitem__(self, name: str) -> str:
        path = self.run.path / name
        return path.read_text().strip() if path.exists() else ""


def bash(text: str) -> tuple[str, ...]:
    return ("bash", "-c", text)


# One line: those of two ranks may mix.
RANK = 'echo "here $RANK of $WORLD_SIZE ${SECRET_OF_THE_SCRIPT//$NEWLINE/+} $PWD"'


@pytest.mark.repeated
@pytest.mark.parametrize("fanout", ["pbsdsh", "pbs_tmrsh", "ssh", "mpiexec"])
def test_two_nodes_by_every_fan_out_of_pbs(tmp_path: Path, fanout: str):
    job = Job(tmp_path, command=bash(RANK), nodes=2, nproc_per_node=2, fanout=fanout)
    assert job.execute() == 0, job.log
    # The agents have what the script exports and its folder, although nothing of that was handed to them.
    said = re.findall(r"\[rank (\d)\] here (\d) of 4 two\+lines (.*)$", job.log, re.MULTILINE)
    assert sorted(said) == [(str(r), str(r), str(job.folder)) for r in range(4)], job.log
    assert job["outcome"] == "done" and job["exit_code"] == "0"
    if fanout == "pbsdsh":  # lines of the node file, not hosts
        calls = (job.fakes / "pbsdsh.log").read_text()
        assert sorted(re.findall(r"-n (\d)", calls)) == ["0", "2"]


def test_two_nodes_by_the_mpiexec_of_a_cray(tmp_path: Path):
    job = Job(tmp_path, command=bash(RANK), nodes=2, nproc_per_node=1, fanout="mpiexec")
    cray = find_site("pbs", {}, tmp_path).model_copy(update={"mpi": Mpi(kind="pals")})
    job.script.write_text(render(job.spec, cray, job.run.path))
    rejects = "[[ $* != *--map-by* && $* != *--bind-to* ]] || exit 1\nfor"
    pals = MPIEXEC.replace("for", rejects, 1).replace("OMPI_COMM_WORLD_RANK", "PALS_RANKID")
    (job.fakes / "mpiexec").write_text(pals)
    assert job.execute() == 0, job.log
    assert sorted(re.findall(r"here (\d) of 2", job.log)) == ["0", "1"], job.log


def test_a_failing_agent_ends_the_others_although_pbsdsh_ends_with_0(tmp_path: Path):
    text = 'if [ "$RANK" = 1 ]; then echo oops; exit 7; fi; sleep 600'
    job = Job(tmp_path, command=bash(text), nodes=2, nproc_per_node=1)
    assert job.execute() == 7, job.log
    assert "[rank 1] oops" in job.log and "rank 1 on " in job.log
    assert job["outcome"] == "failed" and job["exit_code"] == "7"


# Rank 0 loses its connection because of rank 1, and is gone before that has ended.
CONSEQUENCE = r"""
says() { printf 'Traceback (most recent call last):\n  File "x.py", line 1\n%s\n' "$1" >&2; }
if [ "$RANK" = 1 ]; then trap '' TERM; says 'ValueError: boom'; sleep 2; exit 3; fi
sleep 0.5; says 'RuntimeError: Connection closed by peer [127.0.0.1]:1234'; exit 1
"""


def test_the_cause_is_named_and_not_the_rank_that_lost_its_connection_to_it(tmp_path: Path):
    job = Job(tmp_path, command=bash(CONSEQUENCE), launcher="mpirun", nproc_per_node=2)
    began = time.time()
    assert job.execute() == 3, job.log
    failure = read_markers(job.run.path).failure
    assert failure is not None
    assert (failure.rank, failure.code, failure.words) == (1, 3, "ValueError: boom")
    assert began < failure.time < time.time() and failure.host == os.uname().nodename
    # The last words of the log, so that whoever reads it from its end sees them first.
    *_, first, ends = [line for line in job.log.splitlines() if line.startswith("==== rankup: ")]
    assert str(failure) in first and first.endswith("exit code 3: ValueError: boom")
    assert ends == "==== rankup: failed, exit code 3"


def test_the_last_words_of_a_rank_are_in_the_log_although_its_whole_group_is_told_to_end(tmp_path: Path):
    both = ': >"up-$RANK"; until [ -e up-0 ] && [ -e up-1 ]; do sleep 0.05; done'  # else one is told before its trap
    text = f'trap "" TERM; {both}; kill -TERM 0; sleep 0.5; echo "last words of $RANK"; exit 3'
    job = Job(tmp_path, command=bash(text), launcher="mpirun", nproc_per_node=2)
    assert job.execute() == 3, job.log
    assert sorted(re.findall("last words of (.)", job.log)) == ["0", "1"], job.log


def test_a_rank_that_is_killed_is_named_with_its_signal(tmp_path: Path):
    text = '[ "$RANK" = 0 ] || kill -KILL $$; trap "exit 5" TERM; while :; do sleep 0.1; done'
    job = Job(tmp_path, command=bash(text), launcher="mpirun", nproc_per_node=2)
    assert job.execute() == 137, job.log
    failure = read_markers(job.run.path).failure
    assert failure is not None and (failure.rank, failure.code) == (1, 137)
    assert "killed by SIGKILL (often: out of memory)" in str(failure) and str(failure) in job.log


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_between_its_launcher_and_a_rank_stands_nothing_that_changes_its_end(tmp_path: Path, shell: str):
    rank = files("rankup.script").joinpath("parts").joinpath("rank.sh")
    env = {**os.environ, "RUN": str(tmp_path), "RANK": "2"}

    def end(text: str, *signals: signal.Signals) -> int:
        (tmp_path / "up").unlink(missing_ok=True)
        process = subprocess.Popen(
            [shell, rank, "bash", "-c", f"{text}\necho >>{tmp_path}/up; wait"],
            env=env,
            start_new_session=True,
        )
        for signum in signals:
            while not (tmp_path / "up").exists():
                time.sleep(0.02)
            os.killpg(process.pid, signum)
        return process.wait(timeout=240)

    assert end("exit 0") == 0 and not (tmp_path / "failures").exists()
    assert end("exit 6") == 6
    assert end("kill -KILL $$") == -signal.SIGKILL
    assert end("trap 'exit 0' TERM; sleep 999 &", signal.SIGTERM) == 0  # it saves when it is told to end
    assert end("sleep 999 &", signal.SIGTERM) == -signal.SIGTERM
    said = [line.split() for line in (tmp_path / "failures").read_text().splitlines()]
    assert [words[1:] for words in said] == [["2", os.uname().nodename, c, "0"] for c in ("6", "137", "143")]


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize(("signum", "lines"), [("TERM", 1), ("KILL", 0)])
def test_a_rank_that_is_told_to_end_while_its_failure_is_noted_leaves_no_half_line(
    tmp_path: Path, shell: str, signum: str, lines: int
):
    date = tmp_path / "date"
    date.write_text(f'#!/bin/sh\nkill -{signum} $$\nexec /bin/date "$@"\n')
    date.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "RUN": str(tmp_path), "RANK": "2"}
    rank = files("rankup.script").joinpath("parts").joinpath("rank.sh")
    assert subprocess.run([shell, rank, "sh", "-c", "exit 7"], env=env, timeout=240).returncode == 7
    noted = (tmp_path / "failures").read_text().splitlines() if (tmp_path / "failures").exists() else []
    assert [line.split()[1:] for line in noted] == [["2", os.uname().nodename, "7", "0"]] * lines


@pytest.mark.own_python
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_script_is_run_by_the_python_of_the_torchrun_that_started_it(tmp_path: Path, shell: str):
    rank = files("rankup.script").joinpath("parts").joinpath("rank.sh")
    (tmp_path / "x y.py").write_text("import sys; print(sys.executable, sys.argv[1:])")
    start = (
        f"import subprocess; subprocess.run([{shell!r}, {str(rank)!r}, '-u', 'x y.py', 'a b'], check=True)"
    )
    env = {"PATH": "/usr/bin:/bin", "RUN": str(tmp_path)}  # whose Python is another one
    done = subprocess.run(
        [sys.executable, "-c", start], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=240
    )
    assert done.stdout == f"{sys.executable} ['a b']\n", done.stderr


HELD = """
import os, socket, sys
port = int(os.environ["MASTER_PORT"])
with socket.socket() as other:
    try:
        other.bind(("", port))
    except OSError:
        print("held", flush=True)
with socket.socket() as server:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("", port))
    server.listen()
    print("listens", port, flush=True)
"""


def test_the_ranks_port_is_held_on_their_host_and_let_go_at_the_end(tmp_path: Path):
    job = Job(tmp_path, command=("held.py",), launcher="single")
    (job.folder / "held.py").write_text(HELD)
    assert job.execute() == 0, job.log
    port = re.search(r"^held\nlistens (\d+)$", job.log, re.MULTILINE)
    assert port is not None, job.log
    with socket.socket() as again:
        again.bind(("", int(port[1])))


def test_without_a_python_a_port_is_chosen_all_the_same(tmp_path: Path):
    job = Job(
        tmp_path, command=bash('echo "meets at $MASTER_PORT"'), launcher="mpirun", nodes=1, python="none"
    )
    for name in ("python3", "python"):
        (job.fakes / name).write_text("#!/bin/bash\nexit 127\n")
        (job.fakes / name).chmod(0o755)
    assert job.execute() == 0, job.log
    assert re.search(r"meets at (1[5-9]|2\d|3[01])\d{3}$", job.log, re.MULTILINE), job.log


@pytest.mark.slow
@pytest.mark.own_python
def test_an_agent_that_is_killed_ends_the_job_at_once_although_it_leaves_no_word(tmp_path: Path):
    parent = "ps -o ppid= -p"
    kills = f'launcher=$({parent} $PPID); agent=$({parent} $launcher); [ "$RANK" = 0 ] || '
    kills += "{ kill -KILL $agent $launcher; exit; }; sleep 600"
    job = Job(tmp_path, command=bash(kills), nodes=2, nproc_per_node=1)
    assert job.execute() == 1, job.log
    assert "exit status 265" in job.log and job["outcome"] == "failed"


def test_a_node_on_which_nothing_can_be_started_ends_the_job_at_once(tmp_path: Path):
    job = Job(tmp_path, command=bash("sleep 600"), nodes=2, nproc_per_node=1)
    says = '[ "$2" = 0 ] || { echo "pbsdsh: error 17000 on spawn"; exit 0; }\n'
    (job.fakes / "pbsdsh").write_text(PBSDSH.replace("shift 3", says + "shift 3"))
    process = job.start()
    try:
        # Without a word from PBS a code that is late on NFS would be waited for: 75 s.
        assert process.wait(timeout=240) == 1
    finally:
        process.kill()
        job.clean_up()
    assert "on spawn" in job.log and job["outcome"] == "failed"


@pytest.mark.repeated
@pytest.mark.parametrize(("given", "seen"), [({}, "none"), ({"CUDA_VISIBLE_DEVICES": "2"}, "2")])
def test_a_node_keeps_its_own_gpus_unless_others_are_given(tmp_path: Path, given: dict[str, str], seen: str):
    text = 'echo "sees ${CUDA_VISIBLE_DEVICES:-none}"'
    job = Job(tmp_path, command=bash(text), nodes=2, nproc_per_node=1, env=given)
    # As PBS's hook sets it for the head.
    assert job.execute({"CUDA_VISIBLE_DEVICES": "GPU-of-the-head"}) == 0, job.log
    assert re.findall(r"sees (\S+)$", job.log, re.MULTILINE) == [seen, seen], job.log


def test_what_agents_are_given_is_for_their_owner_alone(tmp_path: Path):
    text = 'stat -c "its mode %a" "$RUN/agent-1.sh"'
    job = Job(tmp_path, command=bash(text), nodes=2, nproc_per_node=1, secrets=("TOKEN",))
    (job.run.path / "secrets.env").write_text("export TOKEN='12345678'\n")
    assert job.execute() == 0, job.log
    assert job.log.count("its mode 600") == 2, job.log
    # And when no attempt follows, nothing of it is left.
    assert not list(job.run.path.glob("agent-*.sh")) and not (job.run.path / "secrets.env").exists()


@pytest.mark.parametrize(
    ("values", "there"),
    [({}, False), ({"time": 30, "stop_before": 28}, True), ({"array": "3-4"}, True)],
    ids=["ends", "requeued", "one-task-of-two"],
)
def test_secrets_stay_as_long_as_an_attempt_may_need_them(
    tmp_path: Path, values: dict[str, Any], there: bool
):
    text = WAITS if "time" in values else "true"
    job = Job(tmp_path, command=bash(text), launcher="single", secrets=("TOKEN",), **values)
    (job.run.path / "secrets.env").write_text("export TOKEN='12345678'\n")
    env = {"PBS_JOBID": "7[3].head", "PBS_ARRAY_INDEX": "3"} if "array" in values else {}
    for index in (3, 4) if "array" in values else ():  # as `rankup submit` makes them
        (job.run.path / f"task-{index}").mkdir()
    assert job.execute(env) == 0, job.log  # of one that is requeued, the dependents wait for the successor
    assert (job.run.path / "secrets.env").exists() == there
    if "array" in values:
        assert job.execute({"PBS_JOBID": "7[4].head", "PBS_ARRAY_INDEX": "4"}) == 0
        assert not (job.run.path / "secrets.env").exists()


WAITS = 'echo begun; until [ -e "$RANKUP_RUN_DIR/STOP" ]; do sleep 0.1; done; echo requeue >"$RANKUP_RUN_DIR/outcome"'


def test_near_the_time_limit_the_ranks_are_asked_to_stop_and_a_successor_is_submitted(tmp_path: Path):
    job = Job(tmp_path, command=bash(WAITS), time=30, stop_before=28)
    # PBS keeps what waits for this job in its list, and would delete it if the job ended with 75.
    assert job.execute() == 0, job.log
    why, until = job["STOP"].split()
    assert why == "time-limit" and abs(int(until) - time.time()) < 60
    assert (job["requeues"], job["outcome"], job["exit_code"], job["jobs"]) == (
        "1",
        "requeue",
        "75",
        "8.head",
    )
    assert (job.fakes / "qsub.log").read_text().splitlines() == [
        "-W", "depend=afterany:7.head", "-v", "RANKUP_SUCCESSOR=1", str(job.script)
    ]  # fmt: skip
    assert (job.fakes / "qalter.log").read_text().splitlines() == [
        "-W depend=afterok:8.head@head 21.head",
        "-W depend=afterok:17.head@head:8.head@head 22.head",
        "-W depend=afterany:8.head@head 23.head",
    ]
    # The successor goes on in the same directory and log, and asks for one more.
    assert job.execute({"PBS_JOBID": "8.head", "RANKUP_SUCCESSOR": "1"}) == 75
    assert re.findall(r"attempt (\d), job (\d)", job.log) == [("1", "7"), ("2", "8")]
    assert job["requeues"] == "2"


def test_a_job_that_leaves_one_behind_that_could_not_be_told_ends_with_75(tmp_path: Path):
    job = Job(tmp_path, command=bash(WAITS), time=30, stop_before=28)
    (job.fakes / "qalter").write_text(QALTER + "[[ $* != *22.head ]]\n")
    assert job.execute() == 75, job.log  # 22.head would otherwise begin before the work is done
    assert "could not be told to wait for 8.head" in job.log and "7.head: 22.head" in job.log


@pytest.mark.parametrize(
    "values", [{}, {"time": 3600, "stop_before": 10}], ids=["none-given", "another-given"]
)
def test_the_time_limit_is_the_one_that_pbs_says(tmp_path: Path, values: dict[str, Any]):
    job = Job(tmp_path, command=bash(WAITS), **values)
    assert job.execute({"WALLTIME": "00:00:12", "PBS_JOBID": "9.head"}) == 75, job.log
    # Without a word on how early to ask, half of a short limit is left for work.
    assert job["STOP"].startswith("time-limit ") and job["jobs"] == "8.head"


def test_no_more_requeues_than_allowed(tmp_path: Path):
    job = Job(tmp_path, command=bash(WAITS), time=30, stop_before=28, max_requeues=0)
    assert job.execute() == 75
    assert "no more than that is allowed" in job.log and not (job.fakes / "qsub.log").exists()


def test_a_task_of_an_array_goes_on_as_a_job_of_its_own(tmp_path: Path):
    job = Job(tmp_path, command=bash(WAITS), time=30, stop_before=28, array="3-4")
    assert job.execute({"PBS_JOBID": "7[3].head", "PBS_ARRAY_INDEX": "3"}) == 75
    log = (job.run.logs / "job-3.log").read_text()
    assert "requeue 1 of 10" in log
    assert job["task-3/requeues"] == "1" and job["jobs"] == "8.head 3"
    submitted = (job.fakes / "qsub.stdin").read_text()
    assert "#PBS -J" in job.script.read_text() and "#PBS -J" not in submitted
    assert (job.fakes / "qsub.log").read_text().splitlines() == ["-v", "RANKUP_SUCCESSOR=1,RANKUP_TASK=3"]
    again = {"PBS_JOBID": "8.head", "RANKUP_SUCCESSOR": "1", "RANKUP_TASK": "3"}
    assert job.execute(again) == 75
    assert (job.run.logs / "job-3.log").read_text().count("==== rankup: attempt") == 2


DEAF = """cd "$RANKUP_RUN_DIR"
if [ "$(wc -l <attempts)" = 2 ]; then kill -0 "$(cat deaf)" && echo "beside the first"; exit 0; fi
echo $$ >deaf; trap '' TERM; cd "$OLDPWD"; while :; do sleep 0.2; done"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("site", "ends"),
    [("pbs", (0, "requeue")), pytest.param("local", (0, "done"), marks=pytest.mark.campaign)],
)  # its dependents wait for the successor
def test_a_script_that_cannot_be_asked_is_ended_in_time_and_requeued_with_a_word_of_warning(
    tmp_path: Path, site: str, ends: tuple[int, str]
):
    job = Job(tmp_path, site, command=bash(DEAF), time=12, stop_before=10)
    code, alive = job.execute(), job.alive()
    job.clean_up()
    assert (code, job["outcome"], alive) == (*ends, []), job.log
    assert "could not be asked to save" in job.log
    assert "beside the first" not in job.log


@pytest.mark.parametrize("saves", [False, True])
def test_a_second_attempt_that_saves_nothing_is_the_last_one(tmp_path: Path, saves: bool):
    elsewhere = tmp_path / "else where" / "saved"
    elsewhere.parent.mkdir()
    text = '[ -z "$1" ] || touch "$1"; echo "some output"; sleep 600'
    where = str(elsewhere) if saves else ""
    job = Job(tmp_path, command=(*bash(text), "_", where), launcher="single", time=100, stop_before=80)
    (job.run.path / "no_progress").write_text("1\n")  # so said the attempt before
    code = job.execute_until_time_is_up("some output", {"RANKUP_SUCCESSOR": "1"})
    assert code == (0 if saves else 75), job.log  # 0: its dependents wait for the next
    status = status_of(SubmittedRun(job.run, job.spec, "pbs", "pbs"), {})
    if saves:
        assert (job["outcome"], job["no_progress"], job["jobs"]) == ("requeue", "", "8.head")
    else:
        assert (job["outcome"], job["jobs"], status.state, status.code) == ("failed", "", JobState.FAILED, 75)
        assert "two attempts in a row have met the time limit and saved nothing" in status.reason
        assert status.reason in job.log


def test_a_first_attempt_that_saves_nothing_is_followed_by_another_and_says_so(tmp_path: Path):
    job = Job(tmp_path, command=bash("echo begun; sleep 600"), launcher="single", time=100, stop_before=80)
    assert job.execute_until_time_is_up("begun") == 0, job.log  # its dependents wait for the successor
    assert (job["outcome"], job["no_progress"], job["jobs"]) == ("requeue", "1", "8.head")
    assert "has left no new file" in job.log


def test_what_cannot_be_asked_and_may_not_be_requeued_works_on(tmp_path: Path):
    text = "for i in {1..35}; do sleep 0.2; done; echo 'worked on'"
    job = Job(tmp_path, command=bash(text), launcher="single", time=5, stop_before=4, max_requeues=0)
    assert job.execute() == 0, job.log
    assert "worked on" in job.log and job["outcome"] == "done"


def test_a_successor_of_a_finished_run_has_nothing_to_do(tmp_path: Path):
    job = Job(tmp_path, command=bash("echo ran"))
    assert job.execute() == 0
    assert job.execute({"RANKUP_SUCCESSOR": "1"}) == 0
    assert job.log.count("ran\n") == 1 and "nothing is left to do" in job.log


@pytest.mark.parametrize("marked", [False, True], ids=["by-the-scheduler", "by-rankup"])
def test_a_cancelled_job_says_so_and_is_not_requeued(tmp_path: Path, marked: bool):
    job = Job(tmp_path, command=bash("echo begun; sleep 600"), time=60)
    process = job.start()
    while not (job.run.logs / "job.log").exists() or "begun" not in job.log:
        time.sleep(0.05)
    if marked:
        (job.run.path / "CANCELLED").touch()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=240) == 143, job.log
    # Without our mark it may have been preempted as well: the scheduler has the last word.
    assert (job["outcome"], job["exit_code"], job["requeues"]) == ("cancelled" if marked else "", "143", "")


def test_a_preempted_job_saves_and_leaves_the_requeueing_to_the_scheduler(tmp_path: Path):
    job = Job(tmp_path, command=bash(f"trap '' TERM; {WAITS}"), launcher="single")
    process = job.start()
    while not (job.run.logs / "job.log").exists() or "begun" not in job.log:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=240) == 75, job.log
    assert job["STOP"].startswith("terminated ") and job["outcome"] == "requeue"
    assert not (job.fakes / "qsub.log").exists()


# When a node is lost, its pbsdsh says nothing and waits on; the other ranks' connections break.
LOSES = """
if [ "$RANK" = 0 ]; then until [ -e gone ]; do sleep 0.1; done; sleep 1; echo 'connection reset'; exit 1; fi
launcher=$(ps -o ppid= -p $PPID); touch gone; kill -KILL $(ps -o ppid= -p $launcher) $launcher
"""


@pytest.mark.slow
@pytest.mark.own_python
@pytest.mark.parametrize("requeues", [1, pytest.param(0, marks=pytest.mark.campaign)])
def test_a_job_that_loses_a_node_goes_on_as_often_as_it_may_and_names_it(tmp_path: Path, requeues: int):
    job = Job(tmp_path, command=bash(LOSES), nodes=2, nproc_per_node=1, max_requeues=requeues)
    (job.fakes / "pbsdsh").write_text(PBSDSH.replace("code=$?", 'code=$?; [ "$line" = 0 ] || sleep 999')
                                      .replace("shift 3", "line=$2; shift 3"))  # fmt: skip
    (job.fakes / "state-127.0.0.1").write_text("down\n")
    process = job.start({"PBS_JOBID": "9.head"})
    try:
        assert process.wait(timeout=120) == 75, job.log
    finally:
        process.kill()
        job.clean_up()
    assert "the scheduler has lost a node of this job: 127.0.0.1\n" in job.log
    assert (job["jobs"], job["requeues"], job["outcome"]) == (
        ("8.head", "1", "requeue") if requeues else ("", "", "requeue")
    )
    assert ("no more than that is allowed" in job.log) != bool(requeues)


# Told to end, it needs some seconds to save.
SLOW = """save() { sleep 4; echo requeue >"$RANKUP_RUN_DIR/outcome"; echo "saved $RANK"; exit; }
trap save TERM; echo begun; while :; do sleep 0.1; done"""


@pytest.mark.parametrize(
    "fanout",
    [
        "pbsdsh",
        "one-node",
        *(pytest.param(name, marks=pytest.mark.campaign) for name in ("pbs_tmrsh", "ssh")),
    ],
)
def test_when_pbs_ends_the_whole_job_the_ranks_are_waited_for(tmp_path: Path, fanout: str):
    nodes: dict[str, Any] = {"nodes": 2, "nproc_per_node": 1, "fanout": fanout}
    job = Job(tmp_path, command=bash(SLOW), **({"nproc_per_node": 2} if fanout == "one-node" else nodes))
    process = job.start()
    while not (job.run.logs / "job.log").exists() or job.log.count("begun") < 2:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGTERM)  # to the script and everything that it has started on its node
    assert process.wait(timeout=240) == 143, job.log
    assert "saved 0" in job.log and "saved 1" in job.log, job.log
    assert "Traceback" not in job.log, job.log  # of torchrun, which was told to end as well
    assert job["outcome"] == "requeue"
    assert job.alive() == []


@pytest.mark.slow
@pytest.mark.own_python
@pytest.mark.parametrize("how", [pytest.param("told", marks=pytest.mark.campaign), "killed"])
def test_an_agent_leaves_nothing_of_torchrun_on_its_node(tmp_path: Path, how: str, warm: Path):
    text = """[ -e go ] || { cp "$RUN"/agent-*.sh .; exit 0; }
    trap '' TERM; touch "here-$RANK"; while :; do sleep 0.2; done"""
    python = str(warm / "python")  # what this first time gives are the agents' scripts
    job = Job(tmp_path, command=bash(text), nodes=2, nproc_per_node=1, python=python)
    assert job.execute() == 0, job.log
    job.wait_for_guards()  # of this first time: they would end what has the same mark
    (job.folder / "go").touch()
    # By hand, as this machine is both nodes: the script of the job would see to its own, and so to all.
    scripts = [job.folder / f"agent-{i}.sh" for i in (0, 1)]
    for script in scripts:
        assert python in script.read_text()
        script.write_text(script.read_text().replace(python, sys.executable))
    agents = [subprocess.Popen(["bash", script], cwd="/", start_new_session=True) for script in scripts]
    while not all((job.folder / f"here-{i}").exists() for i in (0, 1)):
        time.sleep(0.05)
    if how == "told":
        (job.run.path / "agents.end").write_text("1\n")
    else:
        for agent in agents:
            agent.kill()
    assert all(agent.wait(timeout=240) != 0 for agent in agents)
    deadline = time.monotonic() + (20 if how == "killed" else 0)
    while (alive := job.alive()) and time.monotonic() < deadline:
        time.sleep(0.1)
    job.clean_up()
    assert alive == []


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler of a signal."""
    (caught,) = re.findall(r"^SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(int(caught, 16) >> (number - 1) & 1)


# As many a program does, and as it looks to its shell: told to end, it saves and ends with 0.
SAVES = "trap '{word}exit 0' TERM; echo begun; while :; do sleep 0.1; done"
SAYS_DONE = 'echo "done" >"$RANKUP_RUN_DIR/outcome"; '


# The stand-in job has dependents: they wait for its successor, so both ends are good ones.
@pytest.mark.parametrize(("word", "ends"), [("", (0, "requeue")), (SAYS_DONE, (0, "done"))])
def test_what_ends_well_because_its_time_is_up_is_done_only_if_it_says_so(
    tmp_path: Path, word: str, ends: tuple[int, str]
):
    job = Job(tmp_path, command=bash(SAVES.format(word=word)), launcher="single", time=100, stop_before=80)
    assert (job.execute_until_time_is_up("begun"), job["outcome"]) == ends, job.log
    assert job["jobs"] == ("" if word else "8.head")


@pytest.mark.parametrize(("word", "ends"), [("", (143, "")), (SAYS_DONE, (0, "done"))])
def test_what_ends_well_because_it_is_terminated_is_done_only_if_it_says_so(
    tmp_path: Path, word: str, ends: tuple[int, str]
):
    job = Job(tmp_path, command=bash(SAVES.format(word=word)), launcher="single")
    process = job.start()
    while not (job.run.logs / "job.log").exists() or "begun" not in job.log:
        time.sleep(0.05)
    while not catches(process.pid, signal.SIGTERM):  # the ranks begin before the script watches them
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert (process.wait(timeout=240), job["outcome"]) == ends, job.log


def test_without_a_scheduler_the_script_goes_on_by_itself(tmp_path: Path):
    text = 'if [ "$(wc -l <"$RANKUP_RUN_DIR/attempts")" = 2 ]; then echo second; else ' + WAITS + "; fi"
    job = Job(tmp_path, "local", command=bash(text), launcher="single", time=30, stop_before=28)
    assert job.execute() == 0, job.log
    assert re.findall(r"attempt (\d)", job.log) == ["1", "2"] and "second\n" in job.log


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"pre": ("cd /nowhere || finish failed 3",)}, 3),
        ({"venv": "/nowhere/venv"}, 1),
        ({"modules": ("no-such-module",)}, 1),
    ],
)
def test_an_environment_that_fails_ends_the_job_before_it_starts(
    tmp_path: Path, values: dict[str, Any], why: int
):
    job = Job(tmp_path, command=bash("echo started"), **values)
    assert job.execute() == why
    assert job["outcome"] == "failed" and "started" not in job.log


def test_secrets_reach_the_ranks_and_not_the_script(tmp_path: Path):
    job = Job(
        tmp_path, command=bash('echo "token ${#TOKEN}"'), secrets=("TOKEN",), env={"AWKWARD": 'it\'s "$HOME"'}
    )
    (job.run.path / "secrets.env").write_text("export TOKEN='12345678'\n")
    assert job.execute() == 0, job.log
    assert "token 8" in job.log and "12345678" not in job.script.read_text() + job.log


def test_a_controller_that_does_not_answer_is_no_reason_to_stop(tmp_path: Path):
    # `date -d ""` is last midnight: long past, for a job's end.
    job = Job(tmp_path, "slurm", command=bash("sleep 3; echo ended"), launcher="single")
    env = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "localhost", "SLURM_EXPORT_ENV": "NONE"}
    assert job.execute(env) == 0
    assert job["STOP"] == "" and job["outcome"] == "done"


@pytest.mark.slow
def test_near_the_time_limit_srun_lets_its_tasks_save(tmp_path: Path):
    text = """trap 'sleep 0.5; touch "$RANKUP_RUN_DIR/saved"; exit' TERM; while :; do sleep 0.1; done"""
    job = Job(tmp_path, "slurm", command=bash(text), launcher="single", stop_before=24)
    end = {"SLURM_JOB_END_TIME": str(int(time.time()) + 26)}
    assert job.execute({"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "localhost", **end}) == 75
    assert (job.run.path / "saved").exists() and job["outcome"] == "requeue"
    assert (job.fakes / "scancel.log").read_text() == "--signal=TERM 7\n"


@pytest.mark.parametrize("site", ["local", "pbs"])
def test_a_lone_script_finds_a_world_of_one(tmp_path: Path, site: str):
    names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT TASK"
    (tmp_path / "pro ject").mkdir()
    (tmp_path / "pro ject" / "one.py").write_text(
        f"import os\nprint('found', *(os.environ[n] for n in {names.split()}))\n"
    )
    job = Job(tmp_path, site, command=("one.py",), launcher="single", env={"TASK": "c o l a"})
    assert job.execute({"RANKUP_TASK": "an outer job's"}) == 0, job.log
    assert re.search(r"^found 0 0 1 1 127\.0\.0\.1 \d{5} c o l a$", job.log, re.MULTILINE), job.log


def test_mpirun_reaches_the_nodes_of_pbs_by_pbss_own_way(tmp_path: Path):
    folder = tmp_path / "plain"
    folder.mkdir()
    mpirun = '#!/bin/bash\n"$OMPI_MCA_plm_rsh_agent" node2 "echo \\$0 in \\${PATH%%:*}; exit 5"\n'
    job = Job(tmp_path, command=bash("true"), launcher="mpirun", nodes=2)
    (job.fakes / "mpirun").write_text(mpirun)
    (job.fakes / "mpirun").chmod(0o755)
    (job.fakes / "nodes").write_text("node1.site.org\nnode1.site.org\nnode2.site.org\nnode2.site.org\n")
    job.script.write_text(render(job.spec, find_site("pbs", {}, tmp_path), folder))
    assert job.execute() == 5
    # Open MPI has called it node2, and PBS knows it by its whole name alone.
    assert (job.fakes / "pbs_tmrsh.log").read_text() == "node2.site.org\n"
    # Its own PATH comes along, and what it prints is PBS's.
    assert (job.fakes / "spool").read_text() == f"/bin/sh in {job.fakes}\n"


def test_a_virtual_environment_in_a_container_is_the_python_of_the_command(tmp_path: Path):
    values = {"container": "/images/a.sif", "venv": "/in side/env"}
    for launcher in ("single", "torchrun", "srun"):
        text = script_of(tmp_path, "slurm", command=("x.py",), python="python", launcher=launcher, **values)
        assert "bin/activate" not in text and "/in side/env/bin/python" in text


def script_of(tmp_path: Path, site: str, run: Path = Path("/runs/x/1"), **values: Any) -> str:
    spec = JobSpec.model_validate({"name": "job", "folder": tmp_path, **values})
    return render(spec, find_site(site, {}, tmp_path), run)


def test_directives_survive_an_awkward_run_directory(tmp_path: Path):
    run = Path("/a b/%j #1/'q'\"")
    slurm = script_of(tmp_path, "slurm", run, command=("true",))
    assert '#SBATCH --output="/a b/%%j #1/\'q\'\\"/logs/job.log"\n' in slurm  # as the lab's sbatch reads it
    assert "#PBS -o" not in script_of(tmp_path, "pbs", run, command=("true",))
    with pytest.raises(RankupError, match="cannot write a log"):
        script_of(tmp_path, "slurm", Path("/a\\b"), command=("true",))


# The two names of this machine have a disk each: lines 0 and 2 of the node file.
DISKS = PBSDSH.replace("shift 3", 'sed -i "s:/disk/:/disk-$2/:" "$5"\nshift 3')


@pytest.mark.slow
def test_each_node_has_the_data_before_its_ranks_start_and_gives_its_results_back(tmp_path: Path):
    data = tmp_path / "the data"
    data.mkdir()
    (data / "words").write_text("some words")
    text = 'mkdir -p "$1"; echo "$(cat "$0") by $RANK of $2" >"$1/rank-$RANK"'
    job = Job(
        tmp_path,
        command=(*bash(text), "{stage}/data/words", "{stage}/out", "{stage}"),
        **{"nodes": 2, "nproc_per_node": 2, "stage": {"data": str(data)}, "back": ("out/*",)},
    )
    (job.fakes / "pbsdsh").write_text(DISKS)
    for line in "02":
        (tmp_path / f"disk-{line}").mkdir()
    (tmp_path / "disk").symlink_to("disk-0")  # the script runs on the first node
    assert job.execute({"TMPDIR": str(tmp_path / "disk")}) == 0, job.log
    written = {path.name: path.read_text() for path in job.run.path.glob("results/node-*/out/rank-*")}
    assert written == {
        f"rank-{rank}": f"some words by {rank} of {tmp_path}/disk-{2 * (rank // 2)}/rankup-7.head\n"
        for rank in range(4)
    }
    assert len(list(job.run.path.glob("results/node-1/out/rank-*"))) == 2
    assert job.log.count("==== rankup: stage, ") == 4 and "data: 10 B in " in job.log
    assert not [*tmp_path.glob("disk-*/*"), *job.run.path.glob("agent-*.sh")]


def test_data_that_is_missing_ends_the_job_before_a_rank_starts(tmp_path: Path):
    job = Job(tmp_path, command=bash("echo trained"), stage={"data": "/nowhere/data.tar"})
    assert job.execute({"TMPDIR": str(tmp_path)}) == 1
    assert "trained" not in job.log and job["outcome"] == "failed"
    why = f"{os.uname().nodename}: stage-no-source: there is no '/nowhere/data.tar' here (data)"
    assert job["why"] == why and why in job.log
    status = status_of(SubmittedRun(job.run, job.spec, "pbs", "pbs"), {})
    assert (status.state, status.reason) == (JobState.FAILED, why)


PIXI = """#!/bin/bash
[ "$*" = "shell-hook --shell bash --frozen --no-install --manifest-path $HOME/a project" ] || exit 2
echo 'export OF_PIXI="its value"'
"""


@pytest.mark.parametrize("answers", [True, False])
def test_a_pixi_workspace_is_activated_as_it_is_installed_or_the_job_ends(tmp_path: Path, answers: bool):
    job = Job(tmp_path, command=bash('echo "has $OF_PIXI"'), pixi="$HOME/a project")
    (job.fakes / "pixi").write_text(PIXI if answers else "#!/bin/bash\nexit 1\n")
    (job.fakes / "pixi").chmod(0o755)
    assert job.execute() == (0 if answers else 1), job.log
    assert ("has its value" in job.log) is answers and ("has" in job.log) is answers
