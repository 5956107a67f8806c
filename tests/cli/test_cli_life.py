"""``rankup status``, ``logs``, ``cancel`` and ``resume`` from their command lines, against a pretend SLURM."""

from __future__ import annotations

import json

import pytest

from commands import calling
from fake_slurm import FakeSlurm


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RANKUP_SITE", raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return FakeSlurm(tmp_path, monkeypatch)


run = calling()


@pytest.fixture
def submitted(slurm, capfd, tmp_path):
    """Submits a job called ``name`` and gives its run directory."""

    def submit(name, *options):
        _, out, _ = run(capfd, "submit", "--json", "--time", "1h", "--name", name, *options, "true")
        return tmp_path / "work" / json.loads(out)["run"]

    return submit


def ends(path, outcome, code, log=""):
    (path / "attempts").write_text("1 101 0 node1\n")
    (path / "outcome").write_text(outcome)
    (path / "exit_code").write_text(str(code))
    (path / "logs" / "job.log").write_text(log)


def test_status_asks_once_for_all_jobs_and_not_for_those_that_have_ended(slurm, submitted, capfd):
    ends(submitted("first"), "failed", 3)
    submitted("second")
    submitted("third")
    slurm.sets(("102", "RUNNING", "None"), ("103", "PENDING", "Priority"))
    code, out, _ = run(capfd, "status")
    rows = [line.split()[:3] for line in out.splitlines()[1:]]
    assert code == 0
    assert rows == [["101", "first", "failed"], ["102", "second", "running"], ["103", "third", "pending"]]
    (call,) = slurm.calls("squeue")
    assert call.endswith("--jobs=102,103")


def test_status_of_one_run_in_detail_and_as_json(slurm, submitted, capfd):
    path = submitted("mine")
    (path / "attempts").write_text("1 101 0 node1\n")
    (path / "requeues").write_text("1")
    slurm.sets(("101", "PENDING", "Resources"))
    out = run(capfd, "status", "mine")[1]
    assert "requeued 1 of 10 times, waits for free nodes" in out and "runs/mine/" in out
    (answer,) = json.loads(run(capfd, "status", "101", "--json")[1])
    assert (answer["state"], answer["attempts"], answer["jobs"]) == ("pending", 1, ["101"])


def test_status_survives_the_schedulers_forgetting(submitted, capfd):
    ends(submitted("mine"), "done", 0)
    assert "done" in run(capfd, "status", "mine")[1]


def test_the_rank_that_failed_first_stands_before_the_log(submitted, capfd):
    path = submitted("mine")
    (path / "failure").write_text("1000000000.5 3 node2 1\nValueError: of rank three\n")
    ends(path, "failed", 1, log="rank 0: connection closed by peer\n")
    code, out, err = run(capfd, "logs", "mine")
    assert (code, out) == (0, "rank 0: connection closed by peer\n")
    assert (
        err.startswith("rankup: rank 3 on node2 failed first, at 2001-09-09")
        and "ValueError: of rank three" in err
    )


def test_status_of_nothing_is_no_error(slurm, capfd):
    assert run(capfd, "status")[:2] == (0, "no runs in runs\n")
    assert run(capfd, "status", "--json")[1] == "[]\n"


@pytest.mark.slow
def test_status_shows_the_last_ten_that_have_ended(slurm, submitted, capfd, tmp_path):
    for _ in range(12):
        ends(submitted("mine"), "done", 0)
    assert len(json.loads(run(capfd, "status", "--json")[1])) == 10
    assert len(json.loads(run(capfd, "status", "--json", "--all")[1])) == 12
    assert run(capfd, "status")[1].splitlines()[-1] == "… and 2 older runs: rankup status --all"
    assert "older" not in run(capfd, "status", "--all")[1]


@pytest.mark.parametrize("how", ["down", "frozen"])
def test_of_a_silent_controllers_jobs_the_run_directories_say_what_they_know(slurm, submitted, capfd, how):
    ends(submitted("ended"), "done", 0)
    (submitted("begun") / "attempts").write_text("1 102 0 node7\n")
    submitted("waits")
    slurm.has(how)
    timeout = ("--timeout", "0.3") if how == "frozen" else ()
    code, out, err = run(capfd, "status", *timeout)
    states = {line.split()[1]: line for line in out.splitlines()}
    assert code == 1 and err.count("[scheduler-unreachable]") == 1
    assert " done " in states["ended"]
    assert (
        " unknown " in states["begun"]
        and "attempt 1 started" in states["begun"]
        and "node7" in states["begun"]
    )
    assert " unknown " in states["waits"] and "no attempt has started" in states["waits"]
    code, out, err = run(capfd, "status", "begun", "--json", *timeout)
    assert (code, json.loads(out)[0]["state"], err) == (1, "unknown", "")


def test_a_suspended_job_says_so(slurm, submitted, capfd):
    submitted("mine")
    slurm.sets(("101", "SUSPENDED", "None"))
    assert run(capfd, "status")[1].splitlines()[1].split()[2] == "suspended"
    assert "state          suspended: another job has its nodes" in run(capfd, "status", "mine")[1]
    assert json.loads(run(capfd, "status", "--json")[1])[0]["suspended"] is True


def test_what_tasks_of_an_array_were_requeued_is_not_more_than_allowed(slurm, submitted, capfd):
    path = submitted("mine", "--array", "0-1", "--max-requeues", "10")
    slurm.sets(("101_0", "PENDING", "BeginTime"), ("101_1", "PENDING", "BeginTime"))
    for task, times in ((0, 4), (1, 7)):
        (path / f"task-{task}" / "requeues").write_text(str(times))
    out = run(capfd, "status", "mine")[1]
    assert "requeues       11, of 10 for each task" in out and " 0.00 s" not in out


def test_a_task_that_is_named_is_shown_and_cancelled_alone(slurm, submitted, capfd):
    path = submitted("mine", "--array", "0-2")
    slurm.sets(("101_0", "RUNNING", "None"), ("101_1", "RUNNING", "None"), ("101_2", "PENDING", "Priority"))
    out = run(capfd, "status", "101_2")[1]
    assert "task           2" in out and "state          pending" in out and "running" not in out
    answer = json.loads(run(capfd, "status", "--json", "101_1")[1])[0]
    assert (answer["job"], answer["jobs"], answer["state"]) == ("101_1", ["101_1"], "running")
    code, out, _ = run(capfd, "cancel", "101_1")
    assert (code, out) == (0, f"{path.relative_to(path.parents[2])}, task 1: job 101_1 cancelled\n")
    assert slurm.calls("scancel") == ["scancel 101_1"]
    assert [(path / f"task-{i}" / "CANCELLED").exists() for i in range(3)] == [False, True, False]
    assert (path / "task-1" / "outcome").read_text() == "cancelled\n"
    for i in (0, 1):
        (path / "logs" / f"job-{i}.log").write_text(f"of task {i}\n")
    assert run(capfd, "logs", "101_1")[1] == "of task 1\n"
    assert "[one-task]" in run(capfd, "resume", "101_1")[2]
    assert "[no-such-task]" in run(capfd, "cancel", "101_7")[2]
    assert slurm.calls("scancel") == ["scancel 101_1"]


def test_save_asks_one_task_alone(slurm, submitted, capfd):
    path = submitted("mine", "--array", "0-1")
    slurm.sets(("101_0", "RUNNING", "None"), ("101_1", "RUNNING", "None"))
    assert run(capfd, "cancel", "--save", "101_0")[0] == 0
    assert [(path / f"task-{i}" / "STOP").exists() for i in range(2)] == [True, False]


def test_logs_of_all_of_one_rank_and_of_the_end(slurm, submitted, capfd):
    path = submitted("mine", "--launcher", "torchrun", "--nproc-per-node", "2")
    ends(path, "done", 0, "head\n[rank 0] a\n[rank 1] b\n[rank 1] c\nno end")
    assert run(capfd, "logs")[:2] == (0, "head\n[rank 0] a\n[rank 1] b\n[rank 1] c\nno end\n")
    assert run(capfd, "logs", "mine", "--rank", "1")[1] == "b\nc\n"
    assert run(capfd, "logs", "--rank", "1", "-n", "1", "mine")[1] == "c\n"
    assert json.loads(run(capfd, "logs", "-n", "1", "--json")[1])["lines"] == ["no end"]


def test_following_a_job_that_has_ended_gives_its_log_and_its_code(slurm, submitted, capfd, monkeypatch):
    monkeypatch.setattr("rankup.batch.follow.LAST_LINES_S", 0.01)
    ends(submitted("mine"), "failed", 9, "a\nb\n")
    code, out, err = run(capfd, "logs", "-f", "mine")
    assert (code, out) == (9, "a\nb\n")
    assert err == "rankup: job 101 failed: exit code 9\n"
    code, out, err = run(capfd, "logs", "-f", "--json", "mine")
    assert (code, json.loads(out)["code"]) == (9, 9)
    assert "a\nb\n" in err


def test_a_log_that_is_not_there_yet_is_one_error(submitted, capfd):
    submitted("mine")
    code, out, err = run(capfd, "logs")
    assert (code, out) == (1, "") and "[no-log-yet]" in err


def test_cancel_one_and_all(slurm, submitted, capfd):
    for name in ("one", "two", "three"):
        submitted(name)
    slurm.sets(("101", "RUNNING", "None"), ("102", "PENDING", "Priority"), ("103", "COMPLETED", "None"))
    assert "job 101 cancelled" in run(capfd, "cancel", "one")[1]
    assert "has already ended" in run(capfd, "cancel", "three")[1]
    answers = json.loads(run(capfd, "cancel", "--all", "--json")[1])
    assert [answer["cancelled"] for answer in answers] == [["101"], ["102"], []]


def test_cancel_save_says_how_long_the_ranks_have(slurm, submitted, capfd):
    path = submitted("mine", "--stop-before", "2m")
    slurm.sets(("101", "RUNNING", "None"))
    out = run(capfd, "cancel", "--save", "mine")[1]
    assert "asked to save and end within 2 min 00 s" in out
    assert (path / "STOP").exists() and not slurm.calls("scancel")


@pytest.mark.parametrize("args", [(), ("--all", "mine")])
def test_cancel_wants_to_know_what(slurm, capfd, args):
    code, _, err = run(capfd, "cancel", *args)
    assert code == 2 and "[no-target]" in err


def test_resume_submits_into_the_same_directory(slurm, submitted, capfd):
    path = submitted("mine")
    ends(path, "failed", 1)
    code, out, _ = run(capfd, "resume", "mine", "--time", "2h")
    assert (code, out) == (0, f"job 102 submitted: it resumes {path.relative_to(path.parents[2])}\n")
    assert (path / "jobs").read_text() == "101\n102\n"
    assert 'time = "02:00:00"' in (path / "job.toml").read_text()


@pytest.mark.parametrize("command", ["status", "logs", "cancel", "resume"])
def test_a_run_that_is_not_there_is_one_error(slurm, submitted, capfd, command):
    submitted("mine")
    code, out, err = run(capfd, command, "nothing")
    assert (code, out) == (2, "")
    assert "[no-such-run]" in err.splitlines()[0]
