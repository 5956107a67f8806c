"""Jobs without a scheduler: real processes, started, found and ended by the commands that the scheduler gives."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from scheduler_samples import SITE, job, said

from rankup.core import shell
from rankup.errors import RankupError
from rankup.schedulers.base import JobState, scheduler_named
from rankup.schedulers.local.process import find

LOCAL = scheduler_named("local")
HOST = socket.gethostname()


@pytest.fixture
def submit(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Submits a script's text and returns the job's id; what still runs is killed after the test."""
    ids: list[str] = []

    def submit(text: str) -> str:
        (tmp_path / "logs").mkdir(exist_ok=True)
        script = tmp_path / "job.sh"
        script.write_text(text)
        done = shell.run(LOCAL.submit_command(script, job(), SITE), cwd=tmp_path)
        ids.append(LOCAL.read_submit(done, job()))
        return ids[-1]

    yield submit
    for ident in ids:
        if process := find(ident):
            os.killpg(process.pid, signal.SIGKILL)


def status_of(ident: str):
    (command,) = LOCAL.status_commands([ident])
    return LOCAL.read_status(shell.run(command), [ident]).get(ident)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.05)


def test_a_job_runs_on_after_the_command_that_submitted_it(submit, tmp_path: Path):
    ident = submit("echo begun; echo oops >&2; exec sleep 999")
    log = tmp_path / "logs" / "job.log"
    until(lambda: log.read_text() == "begun\noops\n")
    found = status_of(ident)
    assert (found.state, found.nodes, found.id) == (JobState.RUNNING, HOST, ident)
    assert found.elapsed >= 0
    pid = int(ident.split(".")[0])
    assert os.getsid(pid) == pid  # neither the shell's Ctrl-C nor its end reaches it


def test_a_second_attempt_appends_to_the_log(submit, tmp_path: Path):
    for word in ("one", "two"):
        ident = submit(f"echo {word}")
        until(lambda ident=ident: status_of(ident) is None)
    assert (tmp_path / "logs" / "job.log").read_text() == "one\ntwo\n"


def test_cancel_ends_the_script_by_its_trap_and_its_children_too(submit, tmp_path: Path):
    ident = submit("trap 'echo saved; exit 0' TERM; sleep 999 & echo $! > child; wait")
    child = tmp_path / "child"
    until(lambda: child.exists() and child.read_text().strip())
    LOCAL.read_cancel(shell.run(LOCAL.cancel_command([ident])))
    until(lambda: status_of(ident) is None)
    until(lambda: not psutil.pid_exists(int(child.read_text())) or _zombie(int(child.read_text())))
    assert (tmp_path / "logs" / "job.log").read_text() == "saved\n"


def _zombie(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_cancelling_a_job_that_has_ended_is_no_error(submit):
    ident = submit("true")
    until(lambda: status_of(ident) is None)
    assert LOCAL.read_cancel(shell.run(LOCAL.cancel_command([ident]))) is None


def test_a_process_id_that_is_used_again_is_another_job(submit):
    ident = submit("exec sleep 999")
    pid, rest = ident.split(".", 1)
    before = f"{pid}.{int(rest.split('@')[0]) - 60}@{HOST}"
    assert status_of(before) is None
    LOCAL.read_cancel(shell.run(LOCAL.cancel_command([before])))
    assert status_of(ident).state is JobState.RUNNING


def test_another_machine_cannot_tell_and_says_so():
    ident = "12.1795226706@elsewhere"
    found = status_of(ident)
    assert found.state is JobState.RUNNING
    assert "started on elsewhere" in found.reason
    with pytest.raises(RankupError, match="only on the machine") as error:
        LOCAL.read_cancel(shell.run(LOCAL.cancel_command([ident])))
    assert "elsewhere" in error.value.context


def test_files_in_the_jobs_folder_are_not_mistaken_for_pythons(submit, tmp_path: Path):
    (tmp_path / "psutil.py").write_text("raise SystemExit('the wrong one')")
    assert status_of(submit("exec sleep 999")).state is JobState.RUNNING


def test_a_run_directory_without_logs_is_an_error(tmp_path: Path):
    done = shell.run(LOCAL.submit_command(tmp_path / "job.sh", job(), SITE))
    with pytest.raises(RankupError, match="could not be started") as error:
        LOCAL.read_submit(done, job())
    assert "No such file or directory" in error.value.context
    assert error.value.exit_code == 1


@pytest.mark.parametrize(
    ("values", "flag"),
    [
        ({"array": "0-3"}, "--array 0-3"),
        ({"after": ("12",)}, "--after 12"),
        ({"after_any": ("12",)}, "--after-any 12"),
    ],
)
def test_what_needs_a_queue_is_refused(values: dict[str, object], flag: str):
    with pytest.raises(RankupError, match=flag):
        LOCAL.submit_command(Path("/runs/demo/1/job.sh"), job(**values), SITE)


def test_there_is_no_list_of_all_jobs():
    assert LOCAL.status_commands([]) == []


@pytest.mark.parametrize("ident", ["", "abc", "1.2", "99999999999.1@x", "1.1@" + HOST])
def test_ids_that_are_none_belong_to_no_process(ident: str):
    assert find(ident) is None


def test_answers_about_other_jobs_are_left_out():
    assert LOCAL.read_status(said(f"1.1@{HOST} 5 {HOST}\ngarbage\n"), ["2.2@" + HOST]) == {}


def test_a_job_that_is_ending_has_ended(submit, monkeypatch):
    """Killed, it has no memory for a moment before it is a zombie; who saw its files closed is told that it is over."""
    ident = submit("exec sleep 999")
    assert find(ident) is not None
    with monkeypatch.context() as patch:
        patch.setattr(psutil.Process, "memory_info", lambda self: SimpleNamespace(vms=0))
        assert find(ident) is None
