"""Several processes under torchrun; scripts without torch where they can be, since its import is slow."""

from __future__ import annotations

import os
import signal

import pytest

from flaky import aborts_at_exit
from ranks import free_port
from rankup_process import Started, processes_mentioning, script

pytestmark = pytest.mark.usefixtures("warm_python")


def test_the_first_traceback_comes_first_while_the_others_sit_in_a_collective(tmp_path):
    name = script(
        tmp_path,
        """
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        if dist.get_rank() == 1:
            raise ValueError("no good")
        dist.all_reduce(torch.ones(1))
        """,
    )
    run = Started(tmp_path, "--nproc-per-node", "2", name).end()
    assert run.code == 1
    lines = run.err.splitlines()
    assert lines[0] == "[rank 1] Traceback (most recent call last):"
    assert lines.index("[rank 1] ValueError: no good") < next(
        i for i, line in enumerate(lines) if line.startswith(("[rank 0]", "error:"))
    )
    assert "error: rank 1 failed first: ValueError: no good [worker-failed]" in lines
    assert (run.outcome["failed_rank"], run.outcome["worker_code"]) == (1, 1)
    assert "no good" in (run.run_dir / "logs" / "rank-1.err").read_text()


def test_ranks_that_ignore_sigterm_do_not_hold_up_a_failed_run(tmp_path):
    """torchrun by itself would wait for 30 seconds."""
    name = script(
        tmp_path,
        """
        import os, pathlib, signal, time
        if os.environ["RANK"] == "0":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            pathlib.Path("ready").touch()
            time.sleep(999)
        while not pathlib.Path("ready").exists():
            time.sleep(0.01)
        os._exit(3)
        """,
    )
    run = Started(tmp_path, "--nproc-per-node", "2", name)
    run.wait_for("ready")
    run.end(timeout=240)
    assert run.code == 1
    assert "error: rank 1 failed first: exit code 3 [worker-failed]" in run.err


@pytest.mark.slow
@pytest.mark.own_python
def test_a_ctrl_c_leaves_no_process_not_even_a_worker_of_a_rank(tmp_path):
    name = script(
        tmp_path,
        """
        import multiprocessing, os, pathlib, signal, time

        def works():
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a worker of a DataLoader does
            pathlib.Path("ready-" + os.environ["RANK"]).touch()
            time.sleep(999)

        if __name__ == "__main__":
            worker = multiprocessing.get_context("fork").Process(target=works, daemon=True)
            worker.start()
            worker.join()
        """,
        f"{tmp_path.name}.py",
    )
    run = Started(tmp_path, "--nproc-per-node", "2", name)
    run.wait_for("ready-0")
    run.wait_for("ready-1")
    assert processes_mentioning(name)
    run.send(signal.SIGINT)
    run.end(timeout=240)
    assert run.code == 130
    assert processes_mentioning(name) == []
    assert "Traceback" not in run.err
    assert any("ended by SIGINT" in line for line in run.own), run.own


@aborts_at_exit
def test_the_processes_of_a_second_attempt_meet_each_other_and_not_the_dead(tmp_path):
    name = script(
        tmp_path,
        """
        import os, signal, time, torch, torch.distributed as dist
        dist.init_process_group("gloo")
        dist.all_reduce(torch.ones(1))
        print("attempt", os.environ["TORCHELASTIC_RESTART_COUNT"], flush=True)
        if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        total = torch.ones(1)
        dist.all_reduce(total)
        time.sleep(0.5)
        dist.destroy_process_group()
        print("together", total.item())
        """,
    )
    run = Started(tmp_path, "--nproc-per-node", "2", "--max-restarts", "1", name).end()
    assert run.code == 0, run.err
    said = ("attempt 0", "attempt 1", "together 2.0")
    assert sorted(run.out.splitlines()) == [f"[rank {rank}] {words}" for rank in (0, 1) for words in said]
    assert (run.outcome["outcome"], run.outcome["restarts"], run.outcome["failed_rank"]) == ("done", 1, None)


@pytest.mark.slow
def test_two_nodes_by_hand_with_one_and_two_processes(tmp_path):
    """torchrun takes --n and --m for abbreviations of its own options: here they are the script's."""
    name = script(
        tmp_path,
        """
        import os, sys
        assert sys.argv[1:] == ["--n", "3", "--m=2", "--standalone", "--", "-v"], sys.argv
        print(*(os.environ[k] for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK", "OMP_NUM_THREADS")))
        """,
    )
    script_and_options = (name, "--n", "3", "--m=2", "--standalone", "--", "-v")
    common = ("--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{free_port()}")
    first = Started(tmp_path, *common, "--node-rank", "0", "--nproc-per-node", "1", *script_and_options)
    second = Started(tmp_path, *common, "--node-rank", "1", "--nproc-per-node", "2", *script_and_options)
    first.end()
    second.end()
    assert (first.code, second.code) == (0, 0), first.err + second.err
    cores = len(os.sched_getaffinity(0))
    half = max(1, cores // 2)
    assert first.out == f"[rank 0] 0 3 0 0 {cores}\n"
    assert sorted(second.out.splitlines()) == [f"[rank 1] 1 3 0 1 {half}", f"[rank 2] 2 3 1 1 {half}"]
    assert first.run_dir == second.run_dir  # one directory where the file system is shared
    assert (first.run_dir / "outcome").read_text() == "done\n"


def test_what_torchrun_says_is_the_explanation_where_no_rank_failed(tmp_path):
    name = script(tmp_path, "print('never')")
    run = Started(tmp_path, "--nproc-per-node", "2", name, env={"PET_MONITOR_INTERVAL": "often"}).end()
    assert (run.code, run.out) == (1, "")
    assert "invalid float value: 'often' [launcher-failed]" in run.err
    assert str(run.run_dir / "logs" / "torchrun.err") in run.err
