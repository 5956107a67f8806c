"""One process: no torchrun, and everything else as with many."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from rankup.resolve.here import resolve_here
from rankup.run import outcome
from rankup.run.execute import SilentView, execute
from rankup_process import Started, processes_mentioning, script
from terminal import shown_on_terminal

pytestmark = pytest.mark.usefixtures("warm_python")


def test_arguments_output_and_logs(tmp_path):
    name = script(tmp_path, "import sys; print(sys.argv[1:]); print('oh', file=sys.stderr)")
    run = Started(tmp_path, name, "--json", "-m", "--", "a b").end()
    assert (run.code, run.out, run.err) == (0, "['--json', '-m', '--', 'a b']\n", "oh\n")
    assert (run.run_dir / "logs" / "rank-0.out").read_text() == run.out
    assert (run.run_dir / "logs" / "rank-0.err").read_text() == "oh\n"
    assert (run.run_dir / "outcome").read_text() == "done\n"
    assert run.run_dir.stat().st_mode & 0o777 == 0o700


def test_the_environment_of_a_world_of_one(tmp_path):
    show = "import os, json; print(json.dumps(dict(os.environ)))"
    stale = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "3", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "1"}
    run = Started(tmp_path, "--nnodes", "1", script(tmp_path, show), env=stale).end()
    env = json.loads(run.out)
    world = [env[k] for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR")]
    assert world == ["0", "1", "0", "1", "127.0.0.1"]
    assert env["OMP_NUM_THREADS"] == str(len(os.sched_getaffinity(0)))
    assert env["GLOO_SOCKET_IFNAME"] == "lo"
    assert env["RANKUP_RUN_DIR"] == str(run.run_dir)


def test_the_init_file_is_absent_at_the_start_and_after_the_end(tmp_path):
    name = script(
        tmp_path,
        """
        import os, pathlib
        path = pathlib.Path(os.environ["RANKUP_INIT_FILE"])
        assert path.parent.is_dir() and not path.exists()
        path.write_text("x")
        """,
    )
    run = Started(tmp_path, name).end()
    assert run.code == 0, run.err
    assert not (run.run_dir / "init-file").exists()


def test_a_ctrl_c_while_the_end_is_written_is_not_lost(tmp_path, monkeypatch):
    """What was to follow on the run, another attempt or trial, must not."""
    real = outcome.write_outcome

    def interrupted(*args, **more):
        os.kill(os.getpid(), signal.SIGINT)
        return real(*args, **more)

    monkeypatch.setattr(outcome, "write_outcome", interrupted)
    result = execute(resolve_here({"runs_root": tmp_path}, command=("true",)), SilentView())
    assert (result.code, result.signal) == (0, signal.SIGINT)


def test_an_exception_is_shown_and_named(tmp_path):
    run = Started(tmp_path, script(tmp_path, "raise ValueError('no good')")).end()
    assert run.code == 1
    assert run.err.startswith("Traceback (most recent call last)")
    assert "error: the script failed: ValueError: no good [worker-failed]" in run.err
    assert run.err.count("Traceback") == 1
    assert (run.outcome["outcome"], run.outcome["worker_code"], run.outcome["failed_rank"]) == (
        "failed",
        1,
        0,
    )


@pytest.mark.parametrize(
    ("how", "worker_code", "words"), [("os._exit(7)", 7, "exit code 7"), ("os.abort()", -6, "SIGABRT")]
)
def test_a_worker_s_own_code_stands_in_the_outcome(tmp_path, how, worker_code, words):
    run = Started(tmp_path, "--json", script(tmp_path, f"import os; {how}")).end()
    assert run.code == 1
    result = json.loads(run.out)
    assert (result["code"], result["worker_code"], result["failed_rank"]) == (1, worker_code, 0)
    assert words in result["error"]["message"]
    assert run.outcome["worker_code"] == worker_code


def test_a_run_that_asks_to_be_requeued_ends_with_75(tmp_path):
    name = script(
        tmp_path,
        """
        import os, pathlib
        (pathlib.Path(os.environ["RANKUP_RUN_DIR"]) / "outcome").write_text("requeue\\n")
        """,
    )
    run = Started(tmp_path, name).end()
    assert run.code == 75
    assert (run.run_dir / "outcome").read_text() == "requeue\n"


@pytest.mark.repeated
@pytest.mark.own_python
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_with_its_children(tmp_path, signum, code):
    mark = f"sleep-{tmp_path.name}"
    name = script(
        tmp_path,
        f"""
        import pathlib, signal, subprocess, sys, time
        for s in (signal.SIGINT, signal.SIGTERM):
            signal.signal(s, signal.SIG_IGN)
        child = [sys.executable, "-c", "import time; time.sleep(999)", "{mark}"]
        subprocess.Popen(child, start_new_session=True)
        pathlib.Path("ready").touch()
        time.sleep(999)
        """,
    )
    run = Started(tmp_path, name)
    run.wait_for("ready")
    run.send(signum)
    run.end(timeout=240)
    assert run.code == code
    assert processes_mentioning(mark) == []
    assert run.outcome["outcome"] == "failed"


@pytest.mark.own_python
def test_killed_outright_it_takes_the_script_with_it(tmp_path):
    name = script(
        tmp_path,
        "import pathlib, time; pathlib.Path('ready').touch(); time.sleep(999)",
        f"{tmp_path.name}.py",
    )
    run = Started(tmp_path, name)
    run.wait_for("ready")
    run.send(signal.SIGKILL)
    run.end(timeout=240)
    deadline = time.monotonic() + 240
    while processes_mentioning(name) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert processes_mentioning(name) == []


def test_on_a_terminal_the_script_sees_one_and_the_log_is_kept(tmp_path):
    name = script(
        tmp_path,
        """
        import sys
        print([s.isatty() for s in (sys.stdin, sys.stdout, sys.stderr)])
        print("got", input())
        """,
    )
    ours, theirs = pty.openpty()
    try:
        os.write(ours, b"hello\n")
        process = subprocess.Popen(
            [sys.executable, "-m", "rankup", "run", name],
            cwd=tmp_path,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        assert process.wait(60) == 0
        shown = os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    (log,) = tmp_path.glob("runs/*/*/logs/rank-0.out")
    assert log.read_text() == "[True, True, True]\ngot hello\n"
    assert "[True, True, True]\r\ngot hello\r\n" in shown


def test_what_follows_a_bar_is_a_line_of_its_own(tmp_path):
    name = script(
        tmp_path,
        """
        import os, sys
        import torch, tqdm
        import rankup
        run = rankup.init(snapshots=rankup.Snapshots(every="1 steps"))
        data = torch.utils.data.TensorDataset(torch.ones(16, 1))
        model, opt, data = run.prepare(
            torch.nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=2
        )
        seen = 0
        for epoch in run.epochs(1):
            bar = tqdm.tqdm(epoch, mininterval=0)
            for (x,) in bar:
                seen += 1
                run.backward(model(x).mean())
                run.step(opt)
                if seen == 6:
                    run.print("six")
                    bar.refresh()
                    os._exit(3)
        """,
    )
    command = [sys.executable, "-m", "rankup", "run", name]
    code, lines = shown_on_terminal(command, tmp_path, {"RANKUP_LOST": ""})
    assert code == 1
    warnings = [line for line in lines if "warning:" in line]
    assert len(warnings) == 1 and warnings[0].startswith("warning: these values change"), lines
    assert "six" in lines
    ended = [line for line in lines if "rankup: failed with exit code 3" in line]
    assert len(ended) == 1 and ended[0].startswith("rankup: "), lines


def test_job_sh_does_it_again(tmp_path):
    run = Started(
        tmp_path, "--name", "first", script(tmp_path, "import sys; print(sys.argv[1:])"), "a b", "$x"
    ).end()
    again = subprocess.run(["bash", str(run.run_dir / "job.sh")], capture_output=True, text=True, cwd="/")
    assert again.stdout == run.out == "['a b', '$x']\n"


def test_execute_gives_lines_ticks_and_a_result(tmp_path):
    class Screen(SilentView):
        lines, ticks = [], 0

        def line(self, rank, stream, text):
            self.lines.append((rank, stream, text))

        def tick(self, run):
            self.ticks += 1

    script(tmp_path, "import os; print(os.environ['EXTRA'])")
    screen = Screen()
    flags = {"name": "x", "nproc_per_node": 1, "nodes": 1, "runs_root": tmp_path / "r", "env": {"EXTRA": "7"}}
    job = resolve_here(flags, command=(str(tmp_path / "script.py"),))
    result = execute(job, screen)
    assert (result.code, result.error, result.failed_rank, result.worker_code) == (0, None, None, None)
    assert screen.lines == [(None, "out", "7")]
    assert screen.ticks > 0
    assert result.run.path.parent == tmp_path / "r" / "x"
    assert 0 < result.seconds < 60
