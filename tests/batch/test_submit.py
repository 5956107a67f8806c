"""Submitting, resuming and cancelling: the run directory and the scheduler, all of it or nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import subprocess

import pytest

from fake_slurm import FakeSlurm
from rankup.batch.cancel import cancel, save_and_stop
from rankup.batch.resume import resume
from rankup.batch.store import all_runs, find, load
from rankup.batch.submit import submit
from rankup.core.rundir import RunDir
from rankup.errors import RankupError
from rankup.resolve.precedence import resolve


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", "2")
    monkeypatch.setenv("TOKEN", "it's a $ecret")
    (tmp_path / "work").mkdir()
    return FakeSlurm(tmp_path, monkeypatch)


@pytest.fixture
def asked(tmp_path, slurm):
    def ask(site="slurm", **flags):
        flags = {"time": "1h", "name": "mine", **flags}
        return resolve(
            flags, command=("true",), file=None, site=site, env=os.environ, folder=tmp_path / "work"
        )

    return ask


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_everything_is_there_before_the_scheduler_is_asked(asked, slurm, tmp_path):
    job = submit(asked(secrets=("TOKEN",)), env=os.environ)
    run = job.run.path
    assert run.parent == tmp_path / "work" / "runs" / "mine"
    assert slurm.said("saw").split() == ["job.sh", "job.toml", "logs", "records", "secrets.env"]
    assert (run / "jobs").read_text() == "101\n"
    assert [mode(run / name) for name in (".", "job.sh", "job.toml", "secrets.env")] == [
        0o700, 0o700, 0o600, 0o600
    ]  # fmt: skip
    assert slurm.said("cwd").strip() == str(tmp_path / "work")
    assert slurm.calls("sbatch")[0].endswith(str(run / "job.sh"))


def test_a_secret_is_in_its_file_alone_and_survives_the_shell(asked):
    run = submit(asked(secrets=("TOKEN",)), env=os.environ).run.path
    assert (run / "secrets.env").read_text() == "export TOKEN='it'\"'\"'s a $ecret'\n"
    assert not any("ecret'" in (run / name).read_text() for name in ("job.sh", "job.toml"))


def test_a_submit_from_inside_a_job_leaves_that_jobs_variables_behind(asked, slurm):
    submit(asked(), env=os.environ)
    assert "SLURM_NTASKS_PER_NODE" not in slurm.said("env")


def test_an_arrays_tasks_have_folders(asked):
    run = submit(asked(array="1-3:2"), env=os.environ).run.path
    assert sorted(path.name for path in run.glob("task-*")) == ["task-1", "task-3"]
    assert (run / "task-3" / "records").is_dir() and (run / "task-3" / "logs").is_dir()


def test_a_refused_job_leaves_nothing(asked, slurm, tmp_path):
    slurm.has(
        "refuses", "sbatch: error: invalid partition specified: gpux\nsbatch: error: Invalid partition name"
    )
    with pytest.raises(RankupError) as caught:
        submit(asked(queue="gpux"), env=os.environ)
    assert caught.value.code == "unknown-queue"
    assert not list(tmp_path.glob("work/runs/*"))


def full(monkeypatch):
    """The disk is full: files can be made, and no byte can be written."""

    def write(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("rankup.core.files.os.fsync", write)


def test_on_a_full_disk_a_submit_is_one_error_and_leaves_nothing(asked, slurm, tmp_path, monkeypatch):
    full(monkeypatch)
    with pytest.raises(RankupError, match="cannot write to the run directory: No space left") as caught:
        submit(asked(), env=os.environ)
    assert caught.value.code == "unwritable-directory"
    assert not list(tmp_path.glob("work/runs/*")) and not slurm.calls("sbatch")


def test_on_a_full_disk_a_resume_is_one_error_and_leaves_everything_as_it_was(asked, monkeypatch):
    job = submit(asked(), env=os.environ)
    ended(job, outcome="failed", exit_code="3")
    before = {path.name: path.read_text() for path in job.run.path.iterdir() if path.is_file()}
    full(monkeypatch)
    with pytest.raises(RankupError, match="No space left") as caught:
        resume(job, {}, env=os.environ)
    assert caught.value.code == "unwritable-directory"
    assert {path.name: path.read_text() for path in job.run.path.iterdir() if path.is_file()} == before


@pytest.mark.parametrize("array", ["", "0-1"])
def test_a_job_that_may_be_in_the_queue_ends_as_soon_as_it_begins(asked, slurm, tmp_path, array):
    slurm.has("hangs")  # after it has taken the job
    with pytest.raises(RankupError) as caught:
        submit(asked(secrets=("TOKEN",), array=array), env=os.environ)
    assert caught.value.code == "maybe-submitted" and "squeue --me" in caught.value.hint
    (run,) = tmp_path.glob("work/runs/mine/*")
    assert not (run / "secrets.env").exists()
    env = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "101", "SLURM_JOB_NODELIST": "node1"}
    if array:
        env |= {"SLURM_ARRAY_JOB_ID": "101", "SLURM_ARRAY_TASK_ID": "1"}
    done = subprocess.run(["bash", run / "job.sh"], env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and "nothing is left to do" in done.stdout
    assert all_runs(tmp_path / "work" / "runs") == []  # there is no job that anybody knows


def test_a_resume_that_may_be_in_the_queue_leaves_the_run_as_it_was_with_a_mark(asked, slurm):
    job = submit(asked(), env=os.environ)
    ended(job, outcome="failed", exit_code="3")
    slurm.has("hangs")
    with pytest.raises(RankupError) as caught:
        resume(job, {"time": "2h"}, env=os.environ)
    assert caught.value.code == "maybe-submitted"
    assert (job.run.path / "CANCELLED").exists() and job.run.outcome() == "failed"
    assert load(job.run.path).spec.time == 3600


@pytest.mark.parametrize(
    ("flags", "code"),
    [({"after": ("abc",)}, "bad-after"), ({"name": "n" * 263}, "bad-name"), ({"name": "a/b"}, "bad-name")],
)
def test_what_no_scheduler_takes_is_one_error_before(asked, flags, code):
    with pytest.raises(RankupError) as caught:
        asked(**flags)
    assert caught.value.code == code


@pytest.mark.parametrize("ident", ["4711", "4711_3", "12.server", "12[].head", "12[3].head", "4711;east"])
def test_ids_of_jobs_to_wait_for(asked, ident):
    assert asked(after=(ident,)).spec.after == (ident,)


def test_two_runs_that_draw_the_same_id_have_two_directories(tmp_path, monkeypatch):
    drawn = iter(["aaaa", "aaaa", "bbbb"])
    monkeypatch.setattr("rankup.core.rundir.secrets.token_hex", lambda _: next(drawn))
    monkeypatch.setattr("rankup.core.rundir.time.strftime", lambda _: "20260101-120000")
    one, other = (RunDir.create(tmp_path, "x").path.name for _ in range(2))
    assert (one, other) == ("20260101-120000-aaaa", "20260101-120000-bbbb")


def test_runs_of_other_users_are_passed_over_and_named_when_they_are_asked_for(asked, slurm, monkeypatch):
    mine, theirs = (submit(asked(), env=os.environ).run.path for _ in range(2))
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != theirs and real(path, mode))
    assert [run.run.path for run in all_runs(mine.parents[1])] == [mine]
    with pytest.raises(RankupError) as caught:
        find(str(theirs), mine.parents[1])
    assert caught.value.code == "not-your-run"


def test_a_job_whose_folder_is_gone_is_not_submitted(asked, slurm, tmp_path):
    resolved = asked()
    (tmp_path / "work").rmdir()
    with pytest.raises(RankupError) as caught:
        submit(resolved, env=os.environ)
    assert caught.value.code == "no-such-folder"
    assert not slurm.calls("sbatch")


def test_a_run_comes_back_from_its_directory_as_it_was(asked):
    job = submit(asked(array="0-1"), env=os.environ)
    again = load(job.run.path)
    assert (again.spec, again.scheduler, again.site, again.ids()) == (job.spec, "slurm", "slurm", ("101",))


QSUB = """
echo "qsub $*" >>"$HERE/calls"
echo 12.head
"""
# What it says of the job that is waited for, one line a question.
QSTAT = """
state=$(head -n 1 "$HERE/states")
[ "$(wc -l <"$HERE/states")" = 1 ] || sed -i 1d "$HERE/states"
[ -n "$state" ] || exit 0
printf '{"Jobs": {"%s": {"job_state": "%s", "Exit_status": 0}}}' "${@: -1}" "$state"
"""
QALTER = 'echo "qalter $*" >>"$HERE/calls"\n'


@pytest.mark.parametrize(
    ("states", "told"),
    [("E E F", True), ("F", True), ("R", False), ("H", False), ("E", False), ("E -", False)],
)
def test_a_job_is_told_again_to_wait_for_one_that_has_ended_meanwhile(
    asked, slurm, monkeypatch, states, told
):
    """PBS forgets who waits for a job that is just ending, and ends what waits for a job that it has forgotten."""
    slurm.stand_ins({"qsub": QSUB, "qstat": QSTAT, "qalter": QALTER})
    slurm.has("states", states.replace("-", "").replace(" ", "\n") + "\n")
    monkeypatch.setattr("rankup.batch.submit._ENDING_POLL_S", 0)
    if states == "E":  # as long as one waits for it
        monkeypatch.setattr("rankup.batch.submit._ENDING_TIMEOUT_S", 0)
    submit(asked("pbs", after_any=("11.head",)), env=os.environ)
    assert slurm.calls("qalter") == (["qalter -W depend=afterany:11.head 12.head"] if told else [])


def test_a_job_waits_for_the_successor_that_came_while_it_was_submitted(asked, slurm):
    """The job that has a successor asks once who waits for it, and may do so before that."""
    slurm.stand_ins({"qsub": QSUB, "qstat": QSTAT, "qalter": QALTER})
    slurm.has("states", "R\n")
    first = submit(asked("pbs"), env=os.environ)
    (first.run.path / "jobs").write_text("11.head\n")
    slurm.stand_ins({"qsub": f"echo 13.head >>'{first.run.path}/jobs'\n{QSUB}"})
    submit(asked("pbs", after=("11.head",)), env=os.environ)
    assert slurm.calls("qsub")[1].startswith("qsub -W depend=afterok:11.head ")
    assert slurm.calls("qalter") == ["qalter -W depend=afterok:13.head 12.head"]


def test_successors_wait_behind_the_first_job_where_nodes_may_not_submit(asked, tmp_path, monkeypatch):
    sites = tmp_path / "work" / ".rankup" / "sites"
    sites.mkdir(parents=True)
    (sites / "closed.toml").write_text('extends = "pbs"\n[pbs]\nnodes_may_submit = false\n')
    qsub = tmp_path / "slurm" / "qsub"
    qsub.write_text((tmp_path / "slurm" / "sbatch").read_text().replace("sbatch $*", "qsub $*"))
    qsub.chmod(0o755)
    job = submit(asked("closed", max_requeues=2), env=os.environ)
    assert job.ids() == ("101", "102", "103")
    calls = (tmp_path / "slurm" / "calls").read_text().splitlines()
    assert ["depend" in line for line in calls] == [False, True, True]
    assert "depend=afterany:101" in calls[1] and "depend=afterany:102" in calls[2]


def test_cancel_marks_the_run_asks_and_leaves_a_word(asked, slurm):
    job = submit(asked(), env=os.environ)
    slurm.sets(("101", "RUNNING", "None"))
    assert cancel(job) == ["101"]
    assert slurm.calls("scancel") == ["scancel 101"]
    assert (job.run.path / "CANCELLED").exists()
    assert job.run.outcome() == "cancelled"


@pytest.mark.parametrize(("denied", "there"), [(False, False), (True, True)])
def test_a_job_that_was_cancelled_before_it_began_leaves_no_secrets(asked, slurm, monkeypatch, denied, there):
    monkeypatch.setenv("TOKEN", "1234")
    job = submit(asked(secrets=("TOKEN",)), env=os.environ)
    slurm.sets(("101", "PENDING", "Priority"))
    if denied:
        slurm.has("keeps")
    with contextlib.suppress(RankupError):
        cancel(job)
    assert (job.run.path / "secrets.env").exists() == there


def test_a_cancel_that_is_denied_changes_nothing(asked, slurm):
    job = submit(asked(), env=os.environ)
    slurm.sets(("101", "RUNNING", "None"))
    slurm.has("keeps")
    with pytest.raises(RankupError) as caught:
        cancel(job)
    assert caught.value.code == "not-your-job"
    assert not (job.run.path / "CANCELLED").exists() and job.run.outcome() is None


def test_what_has_ended_is_not_cancelled(asked, slurm):
    job = submit(asked(), env=os.environ)
    slurm.sets(("101", "COMPLETED", "None"))
    assert cancel(job) == [] and not slurm.calls("scancel")
    assert not (job.run.path / "CANCELLED").exists()


def test_save_asks_ranks_that_run_and_cancels_a_job_that_waits(asked, slurm):
    running, waiting = submit(asked(), env=os.environ), submit(asked(), env=os.environ)
    slurm.sets(("101", "RUNNING", "None"), ("102", "PENDING", "Priority"))
    assert save_and_stop(running) == (["101"], [])
    assert running.run.stop_file.read_text().split()[0] == "user"
    assert not slurm.calls("scancel")
    assert save_and_stop(waiting) == ([], ["102"])
    assert slurm.calls("scancel") == ["scancel 102"]


def ended(job, **files):
    (job.run.path / "attempts").write_text("1 101 0 node1\n")
    for name, text in files.items():
        (job.run.path / name).write_text(text)


def test_resume_goes_on_in_the_same_directory(asked, slurm):
    job = submit(asked(), env=os.environ)
    ended(job, outcome="requeue", exit_code="75", requeues="10", STOP="time-limit 1")
    (job.run.logs / "job.log").write_text("so far\n")
    again = resume(job, {"time": "2h"}, env=os.environ)
    assert again.run == job.run and again.ids() == ("101", "102")
    assert load(job.run.path).spec.time == 7200
    left = {path.name for path in job.run.path.iterdir()}
    assert left == {"attempts", "job.sh", "job.toml", "jobs", "logs", "records"}
    assert (job.run.logs / "job.log").read_text() == "so far\n"


def test_a_refused_resume_leaves_everything_as_it_was(asked, slurm):
    job = submit(asked(), env=os.environ)
    ended(job, outcome="failed", exit_code="3")
    before = {path.name: path.read_text() for path in job.run.path.iterdir() if path.is_file()}
    slurm.has("refuses", "sbatch: error: Invalid partition name specified")
    with pytest.raises(RankupError):
        resume(job, {"time": "2h"}, env=os.environ)
    assert {path.name: path.read_text() for path in job.run.path.iterdir() if path.is_file()} == before
    assert not list(job.run.path.glob(".before*"))


@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
def test_a_run_that_is_not_over_is_not_resumed(asked, slurm, state):
    job = submit(asked(), env=os.environ)
    slurm.sets(("101", state, "None"))
    with pytest.raises(RankupError) as caught:
        resume(job, {}, env=os.environ)
    assert caught.value.code == "not-over"


def test_a_run_that_is_done_is_not_resumed(asked):
    job = submit(asked(), env=os.environ)
    ended(job, outcome="done", exit_code="0")
    with pytest.raises(RankupError) as caught:
        resume(job, {}, env=os.environ)
    assert caught.value.code == "already-done"


def test_tasks_that_are_done_stay_done(asked, slurm):
    job = submit(asked(array="0-1"), env=os.environ)
    for index, word in enumerate(("done", "failed")):
        (job.run.path / f"task-{index}" / "outcome").write_text(word)
        (job.run.path / f"task-{index}" / "exit_code").write_text(str(index))
    resume(job, {}, env=os.environ)
    assert (job.run.path / "task-0" / "outcome").read_text() == "done"
    assert not (job.run.path / "task-1" / "outcome").exists()
