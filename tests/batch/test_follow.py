"""Following a job to its end: over requeues and successors, past late files and a silent scheduler. No real clock."""

from __future__ import annotations

import signal

import pytest

from rankup.batch.follow import ASK_LATER_S, Follower, JobLog, describe
from rankup.batch.status import RunStatus, status_of
from rankup.batch.store import SubmittedRun
from rankup.core.rundir import RunDir
from rankup.errors import RankupError
from rankup.run.interrupts import Interrupts
from rankup.run.markers import Markers
from rankup.schedulers.base import JobState, JobStatus
from rankup.spec.jobspec import JobSpec

PENDING = JobStatus("1", JobState.PENDING, reason="waits for free nodes")
RUNNING = JobStatus("1", JobState.RUNNING, nodes="node1")
FAILED = JobStatus("1", JobState.FAILED)
DONE = JobStatus("1", JobState.DONE, code=0)


class Cluster:
    """What happens at which second: ``at(5, says=[RUNNING], outcome="done")`` sets an answer, and writes files."""

    def __init__(self, path, array="", launcher="torchrun"):
        path.joinpath("logs").mkdir()
        spec = JobSpec(command=("true",), name="mine", folder=path, array=array, launcher=launcher)
        self.job = SubmittedRun(RunDir(path), spec, "slurm", "slurm")
        self.path, self.time, self.plan = path, 0.0, []
        self.answer, self.asked, self.shown, self.said = {}, [], [], []
        self.interrupts = Interrupts()
        (path / "jobs").write_text("1\n")
        (path / "attempts").write_text("1 1 0 node1\n")

    def at(self, second, says=None, log="", gone=(), signum=None, **files):
        self.plan.append((second, says, log, gone, signum, files))

    def pause(self, seconds):
        assert self.time < 3600, f"follows for ever; said {self.said}"
        self.time += seconds
        self._happen()

    def _happen(self):
        while self.plan and self.plan[0][0] <= self.time:
            _, says, log, gone, signum, files = self.plan.pop(0)
            if says is not None:
                self.answer = says if isinstance(says, RankupError) else {s.id: s for s in says}
            with (self.path / "logs" / "job.log").open("a") as file:
                file.write(log)
            for name in gone:
                (self.path / name).unlink()
            for name, text in files.items():
                (self.path / name).write_text(text)
            self.interrupts.first = signum

    def look(self, job):
        self.asked.append(self.time)
        if isinstance(self.answer, RankupError):
            raise self.answer
        return status_of(job, self.answer)

    def follow(self, **chosen):
        self._happen()
        follower = Follower(
            self.job, JobLog(self.job, **chosen), self.shown.append, self.said.append, self.interrupts,
            pause=self.pause, now=lambda: self.time, query_status=self.look,
        )  # fmt: skip
        return follower.follow()


@pytest.fixture
def cluster(tmp_path):
    return Cluster(tmp_path)


def test_from_pending_to_done_with_the_whole_log_and_each_change_once(cluster):
    cluster.at(0, [PENDING])
    cluster.at(60, [RUNNING], log="one\n")
    cluster.at(90, [DONE], log="two\nlast, without an end", outcome="done", exit_code="0")
    standing = cluster.follow()
    assert (standing.state, standing.exit_code) == (JobState.DONE, 0)
    assert cluster.shown == ["one", "two", "last, without an end"]
    assert cluster.said == [
        "job 1 is pending: waits for free nodes", "job 1 is running on node1", "job 1 is done"
    ]  # fmt: skip


def test_the_jobs_own_code_comes_back(cluster):
    cluster.at(0, [RUNNING])
    cluster.at(30, [FAILED], log="last, without an end", outcome="failed", exit_code="42")
    standing = cluster.follow()
    assert (standing.state, standing.exit_code) == (JobState.FAILED, 42)
    assert cluster.shown == ["last, without an end"]
    assert cluster.said == ["job 1 is running on node1", "job 1 failed: exit code 42"]


def test_an_exit_code_is_worth_a_question_at_once(cluster):
    cluster.at(0, [RUNNING])
    cluster.at(1000, [DONE], outcome="done", exit_code="0")
    cluster.follow()
    assert 1000 <= cluster.asked[-1] <= 1001


def test_a_scheduler_is_asked_ever_more_rarely(cluster):
    cluster.at(0, [RUNNING])
    cluster.at(1000, [DONE], outcome="done", exit_code="0")
    cluster.follow()
    gaps = [b - a for a, b in zip(cluster.asked, cluster.asked[1:-1], strict=False)]
    assert min(gaps) >= 5 and max(gaps) <= ASK_LATER_S + 1
    assert len(cluster.asked) < 50


def test_after_a_cancel_it_ends_at_once(cluster):
    cluster.at(0, [RUNNING])
    cluster.at(300.4, CANCELLED="")
    cluster.at(302, [JobStatus("1", JobState.CANCELLED)], outcome="cancelled")
    standing = cluster.follow()
    assert (standing.state, standing.exit_code) == (JobState.CANCELLED, 143)
    assert cluster.time < 300.4 + 5


def test_an_exit_code_ends_it_while_the_scheduler_still_cleans_up(cluster):
    cluster.at(0, [RUNNING])
    cluster.at(300.4, CANCELLED="", outcome="cancelled", exit_code="143")
    assert cluster.follow().exit_code == 143
    assert cluster.time < 300.4 + 5


def test_it_goes_on_over_a_requeue(cluster):
    cluster.at(0, [RUNNING], log="first\n")
    cluster.at(20, outcome="requeue", exit_code="75", requeues="1")
    cluster.at(21, [PENDING])
    cluster.at(140, [RUNNING], log="second\n", gone=("outcome", "exit_code"), attempts="1 1 0 n\n2 1 9 n\n")
    cluster.at(200, [DONE], outcome="done", exit_code="0")
    assert cluster.follow().exit_code == 0
    assert cluster.shown == ["first", "second"]
    assert cluster.said == [
        "job 1 is running on node1",
        "job 1 is pending: requeued 1 of 10 times, waits for free nodes",
        "job 1 is running on node1, attempt 2",
        "job 1 is done",
    ]


def test_it_goes_on_with_a_successor_that_is_seen_late(cluster):
    cluster.at(0, [RUNNING])
    cluster.at(20, [FAILED], outcome="requeue", exit_code="75", requeues="1")
    cluster.at(26, [FAILED, JobStatus("2", JobState.PENDING)], jobs="1\n2\n")
    cluster.at(90, [FAILED, JobStatus("2", JobState.DONE)], outcome="done", exit_code="0")
    assert cluster.follow().exit_code == 0
    assert "job 2 is pending: requeued 1 of 10 times" in cluster.said


def test_a_requeue_that_was_not_granted_is_75(cluster):
    cluster.at(0, [RUNNING])
    cluster.at(20, [FAILED], outcome="requeue", exit_code="75", requeues="10")
    assert cluster.follow().exit_code == 75


def test_files_that_come_late_are_waited_for(cluster):
    cluster.at(0, [RUNNING])
    cluster.at(20, [FAILED])
    cluster.at(27, log="the reason\n", outcome="failed", exit_code="3")
    assert cluster.follow().exit_code == 3
    assert cluster.shown == ["the reason"]


def test_missing_files_are_no_end_while_the_scheduler_says_it_runs(cluster):
    cluster.at(0, [RUNNING], gone=("attempts",))
    cluster.at(600, [DONE])
    assert cluster.follow().exit_code == 0
    assert cluster.time >= 600


def test_a_silent_scheduler_is_no_news(cluster):
    cluster.at(0, [RUNNING], log="one\n")
    cluster.at(20, RankupError("scheduler-unreachable", "SLURM's controller does not answer"))
    cluster.at(300, [RUNNING], log="two\n")
    cluster.at(330, [DONE], outcome="done", exit_code="0")
    assert cluster.follow().exit_code == 0
    assert cluster.shown == ["one", "two"]
    assert cluster.said.count("status unknown: SLURM's controller does not answer; still trying") == 1


def test_without_the_schedulers_commands_following_is_an_error(cluster):
    cluster.at(0, RankupError("scheduler-missing", "squeue is not on this machine"))
    with pytest.raises(RankupError):
        cluster.follow()


def test_a_signal_ends_the_following_alone(cluster):
    cluster.at(0, [RUNNING])
    cluster.at(9, signum=signal.SIGINT)
    assert cluster.follow() is None
    assert not (cluster.path / "CANCELLED").exists()


def test_one_ranks_lines_without_their_labels(cluster):
    cluster.at(0, [DONE], log="header\n[rank 0] a\n[rank 1] b\n[rank 1]  c\n", outcome="done", exit_code="0")
    cluster.follow(rank=1)
    assert cluster.shown == ["b", " c"]


def test_the_tasks_of_an_array_are_told_apart(tmp_path):
    array = Cluster(tmp_path, array="0-1")
    for index in (0, 1):
        (tmp_path / f"task-{index}").mkdir()
        (tmp_path / f"task-{index}" / "outcome").write_text("done")
        (tmp_path / f"task-{index}" / "exit_code").write_text("0")
        (tmp_path / "logs" / f"job-{index}.log").write_text(f"from {index}\n")
    array.follow()
    assert array.shown == ["[task 0] from 0", "[task 1] from 1"]
    array.shown.clear()
    array.follow(task=1)
    assert array.shown == ["from 1"]


@pytest.mark.parametrize(("lines", "shown"), [(0, []), (2, ["b", "c"]), (9, ["a", "b", "c"])])
def test_the_backlog_may_be_cut(cluster, lines, shown):
    (cluster.path / "logs" / "job.log").write_text("a\nb\nc\n")
    log = JobLog(cluster.job)
    follower = Follower(cluster.job, log, cluster.shown.append, cluster.said.append, Interrupts())
    follower.backlog(lines)
    assert cluster.shown == shown
    assert list(log.new()) == []


def test_the_attempts_of_an_arrays_tasks_are_not_one_jobs():
    tasks = {0: RunStatus("7_0", JobState.RUNNING), 1: RunStatus("7_1", JobState.RUNNING)}
    said = describe(RunStatus("7", JobState.RUNNING, "2 running", traces=Markers(attempts=2), tasks=tasks))
    assert said == "job 7 is running: 2 running"
