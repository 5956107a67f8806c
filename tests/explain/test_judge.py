"""Which event is the cause: levels, launchers' words, time, what was survived, and collectives that timed out."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankup.explain.explain_logs import explain_logs, explain_run
from rankup.explain.run_directory import read_run


def traceback(error: str, label: str = "", line: int = 3) -> str:
    lines = [
        "Traceback (most recent call last):",
        f'  File "/home/user/train.py", line {line}, in <module>',
        "    raise failure",
        error,
    ]
    return "".join(f"{label}{text}\n" for text in lines)


def explain(folder: Path, **files: str):
    for name, text in files.items():
        (folder / f"{name}.log").write_text(text)
    return explain_logs([folder / f"{name}.log" for name in files])[0]


CLOSED = "RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.1]:1."


def test_an_own_error_goes_before_an_earlier_consequence(tmp_path):
    found = explain(tmp_path, job=traceback(CLOSED, "[rank0]: ") + traceback("ValueError: no", "[rank1]: "))
    assert (found.rank, found.message) == (1, "rank 1 failed first: ValueError: no")
    assert found.cascade[0].startswith("rank 0: the connection to another rank was lost")


def test_only_consequences_are_unknown_and_name_the_silent_ranks(tmp_path):
    text = "[rank2]: loading\n" + traceback(CLOSED, "[rank0]: ") + traceback(CLOSED, "[rank1]: ")
    found = explain(tmp_path, job=text)
    assert found.code == "unknown"
    assert found.rank is None
    assert found.fix.startswith("rank 2 wrote no error: begin there")


def test_a_lost_connection_alone_may_be_a_rank_that_left_without_an_error(tmp_path):
    found = explain(tmp_path, job="validation done, bye\n" + traceback(CLOSED, "[rank0]: "))
    assert found.code == "unknown" and "sys.exit()" in found.fix


def test_a_traceback_that_lines_follow_may_have_been_caught_if_nobody_else_tells_of_a_failure(tmp_path):
    found = explain(tmp_path, job=traceback("ValueError: a bad sample") + "done\n")
    assert found.message == "the job may have failed: ValueError: a bad sample"
    assert found.confidence.value == "likely" and "may also have caught it" in found.why
    assert explain(tmp_path, job=traceback("ValueError: no")).confidence.value == "sure"
    advice = "CUDA kernel errors might be asynchronously reported at some other API call.\n"
    text = traceback("RuntimeError: CUDA error: uncorrectable ECC error encountered") + advice
    assert explain(tmp_path, job=text).confidence.value == "sure"
    lost = traceback("ValueError: no", "[rank1]: ") + "done\n" + traceback(CLOSED, "[rank0]: ")
    assert explain(tmp_path, job=lost).confidence.value == "sure"


@pytest.mark.parametrize(
    ("source", "file", "confidence"),
    [
        ("raise ValueError(text)", "/home/user/train.py", "sure"),
        ("assert rank < size, text", "/home/user/train.py", "sure"),
        ("x = table[name]", "/home/user/train.py", "likely"),
        ("raise ValueError(text)", "/env/lib/python3.11/site-packages/x/y.py", "likely"),
    ],
)
@pytest.mark.parametrize("label", ["", "[rank1]: "])
def test_an_exception_is_the_cause_for_sure_only_in_words_of_the_script(
    tmp_path, label, source, file, confidence
):
    text = traceback("ValueError: no", label).replace("/home/user/train.py", file)
    text = text.replace("raise failure", source)
    found = explain(tmp_path, job=text)
    assert (found.code, found.confidence.value) == ("python-exception", confidence)
    assert ("other data" in found.why) == (confidence == "likely")


@pytest.mark.parametrize("label", ["", "[rank0]: "])
@pytest.mark.parametrize(
    "end", ["", "srun: error: node1: task 0: Exited with exit code 1\n"], ids=["alone", "srun"]
)
def test_a_traceback_at_the_end_goes_before_those_after_which_the_program_went_on(tmp_path, label, end):
    caught = traceback("FileNotFoundError: [Errno 2] No such file or directory: 'a.png'", label)
    text = f"{caught}{label}left out\n{caught}{label}epoch 1\n" + traceback("RuntimeError: stop", label) + end
    found = explain(tmp_path, job=text)
    assert (
        "failed: RuntimeError: stop" in found.message.replace(" first", "")
        and found.confidence.value == "sure"
    )


def test_of_ranks_without_labels_the_first_traceback_counts(tmp_path):
    ends = "".join(f"srun: error: node1: task {rank}: Exited with exit code 1\n" for rank in (2, 0))
    text = traceback("ValueError: the cause") + "step 7\n" + traceback("KeyError: 'later'") + ends
    assert "ValueError: the cause" in explain(tmp_path, job=text).message


def test_a_message_with_an_empty_line_is_whole(tmp_path):
    error = (
        "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded\n\t(1) another way\n\n"
        "Check the documentation of torch.load to learn more about types accepted by default with weights_only"
    )
    found = explain(tmp_path, job=traceback(error))
    assert (found.code, found.message.startswith("the job failed:")) == ("weights-only", True)


def inside(library: str, function: str, error: str, source: str) -> str:
    return traceback(error).replace(
        "    raise failure\n",
        f'    {source}\n  File "/env/lib/{library}", line 9, in {function}\n    inner()\n',
    )


def test_an_error_of_the_system_while_torch_loads_is_a_damaged_file(tmp_path):
    error = "OSError: [Errno 22] Invalid argument"
    text = inside("torch/serialization.py", "load", error, "torch.load(path)")
    opened = text.replace(
        error, '  File "/env/torch/serialization.py", line 1, in __init__\n    reader()\n' + error
    )
    assert explain(tmp_path, job=opened).code == "corrupt-file"
    assert explain(tmp_path, job=text.replace("in load", "in save")).code == "python-exception"


def test_a_lost_connection_to_a_loaders_worker_is_no_other_rank(tmp_path):
    text = inside(
        "torch/multiprocessing/reductions.py", "rebuild_storage_fd", "", "for batch in loader:"
    ).rstrip()
    text += '\n  File "/env/lib/python3.11/multiprocessing/connection.py", line 9, in _recv\n    read()\n'
    found = explain(tmp_path, job=text + "ConnectionResetError: [Errno 104] Connection reset by peer\n")
    assert found.code == "loader-worker-killed"
    text = traceback("").replace("raise failure", "for batch in DataLoader(data, 2): pass").rstrip()
    text += (
        "\nobject address  : 0x7f0\nobject repr     : ConnectionResetError(104, 'Connection reset by peer')\n"
    )
    found = explain(tmp_path, job=text + "lost sys.stderr\n")
    assert (found.code, found.message.startswith("the job failed:")) == ("loader-worker-killed", True)


def test_over_several_files_time_decides_if_all_tell_it(tmp_path):
    late = "2026-01-01 10:00:05 starting\n" + traceback("ValueError: late", "[rank0]: ")
    early = "2026-01-01 10:00:01 starting\n" + traceback("ValueError: early", "[rank1]: ")
    found = explain(tmp_path, a=late, b=early)
    assert found.message == "rank 1 failed first: ValueError: early"
    assert found.confidence.value == "sure"


def test_over_several_files_without_times_the_answer_is_not_sure(tmp_path):
    found = explain(
        tmp_path, a=traceback("ValueError: a", "[rank0]: "), b=traceback("FileNotFoundError: b", "[rank1]: ")
    )
    assert found.confidence.value == "likely"
    assert any("rank 1: a file is missing" in line for line in found.cascade)


SUMMARY = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-22_14:34:26
  host      : node07
  rank      : 5 (local_rank: 1)
  exitcode  : {code} (pid: 16)
  error_file: <N/A>
  traceback : {said}
============================================================
"""


def test_torchruns_root_cause_decides_among_own_errors(tmp_path):
    text = traceback("ValueError: a", "[rank0]: ") + traceback("ValueError: b", "[rank5]: ")
    found = explain(tmp_path, job=text + SUMMARY.format(code=1, said="x"))
    assert (found.rank, found.host) == (5, "node07")


def test_a_rank_that_died_of_a_signal_goes_before_errors_of_others(tmp_path):
    text = traceback("RuntimeError: something that no table has", "[rank0]: ")
    found = explain(
        tmp_path, job=text + SUMMARY.format(code=-11, said="Signal 11 (SIGSEGV) received by PID 16")
    )
    assert (found.code, found.rank, found.host) == ("segmentation-fault", 5, "node07")


def test_a_kill_that_slurm_explains_is_explained(tmp_path):
    oom = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.\n"
    found = explain(tmp_path, job=oom + SUMMARY.format(code=-9, said="Signal 9 (SIGKILL) received by PID 16"))
    assert (found.code, found.rank) == ("oom-kill", 5)


def test_an_error_before_the_time_limit_is_the_cause_of_the_hang(tmp_path):
    limit = "slurmstepd: error: *** JOB 7 ON node01 CANCELLED AT 2026-01-01T10:00:00 DUE TO TIME LIMIT ***\n"
    assert (
        explain(tmp_path, job="step 1\n" * 99 + limit + traceback("KeyboardInterrupt")).code == "time-limit"
    )
    assert (
        explain(tmp_path, job=traceback("ValueError: no") + limit).message == "the job failed: ValueError: no"
    )


def test_a_traceback_after_which_the_program_went_on_is_not_the_cause(tmp_path):
    limit = "slurmstepd: error: *** JOB 7 ON node01 CANCELLED AT 2026-01-01T10:00:00 DUE TO TIME LIMIT ***\n"
    found = explain(tmp_path, job=traceback("ValueError: a bad sample, skipped") + "step\n" * 500 + limit)
    assert found.code == "time-limit"
    assert "earlier, and the program went on: job.log:4: ValueError" in found.cascade[-1]


def test_a_program_that_went_on_to_its_end_did_not_fail(tmp_path):
    (tmp_path / "job.log").write_text(traceback("ValueError: skipped") + "step\n" * 500)
    found, notes = explain_logs([tmp_path / "job.log"])
    assert found is None
    assert notes == ["earlier, and the program went on: job.log:4: ValueError: skipped"]


def test_a_chain_quotes_first_and_last(tmp_path):
    text = traceback("KeyError: 'lr'") + (
        "\nThe above exception was the direct cause of the following exception:\n\n"
    ) + traceback("ConfigError: no learning rate", line=9)  # fmt: skip
    found = explain(tmp_path, job=text)
    assert found.message == "the job failed: ConfigError: no learning rate"
    assert "KeyError: 'lr'" in [quote.text for quote in found.quotes]


def test_source_code_in_a_log_is_no_failure(tmp_path):
    assert (
        explain(
            tmp_path,
            job="    try:\n        except PermissionError as error:\n            raise MemoryError\n",
        )
        is None
    )


def test_an_error_line_is_shown_if_nothing_is_known(tmp_path):
    found = explain(tmp_path, job="step 1\nERROR: the license server says no\nbye\n")
    assert found.code == "unknown"
    assert found.message.endswith("the first error is: ERROR: the license server says no")
    assert explain(tmp_path, job="ERROR: try 1 of 3\n" + "step\n" * 500) is None


CAUGHT = (
    "[rank{rank}]:[E1218 20:27:21.4 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600081 milliseconds\n"
)


@pytest.mark.parametrize(
    ("said", "rank", "message"),
    [
        ([(0, 9, "ALLREDUCE"), (1, 9, "ALLREDUCE"), (3, 9, "ALLREDUCE")], 2, "rank 2 is behind"),
        ([(0, 9, "ALLREDUCE"), (1, 7, "ALLREDUCE"), (2, 9, "ALLREDUCE")], 1, "rank 1 is behind"),
        ([(0, 9, "ALLREDUCE"), (1, 9, "BROADCAST"), (2, 9, "ALLREDUCE")], 1, "rank 1 is behind"),
        ([(0, 9, "ALLREDUCE"), (1, 9, "ALLREDUCE")], None, "all ranks that report it waited"),
        ([(4, 9, "ALLREDUCE")], None, "all ranks that report it waited"),  # nobody knows of ranks 0-3
    ],
)
def test_the_rank_that_a_collective_waited_for(tmp_path, said, rank, message):
    text = "".join(CAUGHT.format(rank=r, seq=s, op=o) for r, s, o in said)
    found = explain(tmp_path, job=text)
    assert found.code == "nccl-watchdog"
    assert found.rank == rank
    assert found.message.startswith(message)


def test_a_watchdog_is_fallout_of_a_traceback(tmp_path):
    text = CAUGHT.format(rank=0, seq=9, op="ALLREDUCE") + traceback("ValueError: no", "[rank1]: ")
    assert explain(tmp_path, job=text).rank == 1


def test_interleaved_ranks_are_told_apart_by_their_labels(tmp_path):
    one, two = traceback("ValueError: one", "[rank0]: "), traceback(CLOSED, "[rank1]: ")
    mixed = "".join(
        line for pair in zip(one.splitlines(True), two.splitlines(True), strict=True) for line in pair
    )
    found = explain(tmp_path, job=mixed)
    assert found.message == "rank 0 failed first: ValueError: one"


def test_only_the_last_attempt_counts(tmp_path):
    text = traceback("ValueError: old") + "=" * 20 + " attempt 2, now\n" + traceback("KeyError: 'new'")
    assert explain(tmp_path, job=text).message == "the job failed: KeyError: 'new'"
    assert explain(tmp_path, job=traceback("ValueError: old") + "=" * 20 + " attempt 2, now\ndone\n") is None


def test_a_run_directory_tells_who_ended_first(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    (tmp_path / "outcome").write_text("failed\n")
    (logs / "rank-0.err").write_text(traceback("ValueError: later"))
    (logs / "rank-1.err").write_text(traceback("ValueError: first"))
    (logs / "events.jsonl").write_text(
        '{"event": "start", "rank": 0, "time": 0}\n{"event": "start", "rank": 1, "time": 0}\n'
        '{"event": "exit", "rank": 1, "code": 1, "time": 10.0}\n{"event": "exit", "rank": 0, "code": 1, "time": 10.1}\nhalf'
    )
    found, *_ = explain_run(read_run(logs, (), (tmp_path,)))
    assert found.message == "rank 1 failed first: ValueError: first"


def test_a_rank_that_ended_with_0_is_the_cause_of_lost_connections(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    (tmp_path / "outcome").write_text("failed\n")
    (logs / "rank-0.err").write_text(traceback("RuntimeError: Connection closed by peer [127.0.0.1]:57029"))
    (logs / "rank-1.err").write_text("")
    (logs / "events.jsonl").write_text(
        '{"event": "start", "rank": 0, "time": 0}\n{"event": "start", "rank": 1, "time": 0}\n'
        '{"event": "exit", "rank": 1, "code": 0, "time": 10.0}\n{"event": "exit", "rank": 0, "code": 1, "time": 10.3}\n'
    )
    found, *_ = explain_run(read_run(logs, (), (tmp_path,)))
    assert (found.code, found.rank) == ("rank-left-early", 1)
    assert found.message == "rank 1 ended early, with exit code 0; rank 0 then failed"


def test_a_run_that_failed_without_a_word_is_unknown(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    (tmp_path / "outcome").write_text("failed\n")
    (logs / "job.log").write_text("step 1\nstep 2\n")
    found, *_ = explain_run(read_run(logs, (logs / "job.log",), (tmp_path,)))
    assert found.code == "unknown"
    assert [quote.text for quote in found.quotes] == ["step 1", "step 2"]


def test_a_step_that_slurm_ends_after_a_task_failed_is_not_cancelled(tmp_path):
    text = (
        "reading input\nsrun: error: nid001097: task 5: Exited with exit code 255\nsrun: Terminating StepId=40341.0\n"
        "slurmstepd: error: *** STEP 40341.0 ON nid001096 CANCELLED AT 2023-12-12T17:52:24 ***\n"
        "srun: error: nid001097: tasks 1,3: Terminated\nsrun: error: nid001096: tasks 0,2,4: Terminated\n"
    )
    found = explain(tmp_path, job=text)
    assert (found.code, found.rank, found.host) == ("unknown", 5, "nid001097")
    assert [quote.text for quote in found.quotes] == [
        "reading input",
        "srun: error: nid001097: task 5: Exited with exit code 255",
    ]


def test_nccls_information_is_no_failure(tmp_path):
    text = (
        "Steps: 0%| | 1/500 [12:44<14459:40:43, 104.11s/it]node1:1:2 [3] NCCL INFO TUNER/Plugin: Plugin load returned 2 : "
        "libnccl-net.so: cannot open shared object file: No such file or directory : when loading libnccl-tuner.so\n"
        "node1:1:2 [3] NCCL INFO misc/socket.cc:64 -> 3\ndone\n"
    )
    assert explain(tmp_path, job=text) is None


def test_a_mistake_of_the_job_script_that_it_survives_is_not_the_cause(tmp_path):
    shell = "job.sh: line 3: module: command not found\nstarting\n"
    assert (
        explain(tmp_path, job=shell + traceback("ValueError: no")).message == "the job failed: ValueError: no"
    )
    found = explain(tmp_path, job=shell + traceback("ModuleNotFoundError: No module named 'torch'"))
    assert found.code == "module-command"
    assert found.quotes[-1].text == "ModuleNotFoundError: No module named 'torch'"


@pytest.mark.parametrize(
    "head", ["Exception ignored in: <function X.__del__ at 0x7f>", "--- Logging error ---"]
)
def test_a_traceback_that_ended_nothing_is_ignored(tmp_path, head):
    ignored = head + "\n" + traceback("AttributeError: 'X' object has no attribute 'y'")
    assert explain(tmp_path, job=ignored + "done\n") is None
    assert (
        explain(tmp_path, job=ignored + traceback("ValueError: no")).message
        == "the job failed: ValueError: no"
    )


@pytest.mark.parametrize(
    "line",
    [
        "training finished, error rate 0.12, failed samples: 0",
        "epoch 3: validation error: 3.1e-2",
        "test error 4.81%",
        "reconstruction error = 0.004, time 3.1s",
        "Top-1 error 24 %",
    ],
)
def test_a_metric_with_the_word_error_is_no_failure(tmp_path, line):
    log = tmp_path / "job.log"
    log.write_text(f"epoch 1\n{line}\n")
    assert explain_logs([log])[0] is None


@pytest.mark.parametrize(
    "line",
    [
        "ERROR: 12 files are missing",
        "Error: file 3.5 is broken",
        "failed with exit code 3",
        "fatal error 0x12 in step 3.0",
    ],
)
def test_a_number_after_the_word_error_does_not_hide_a_failure(tmp_path, line):
    log = tmp_path / "job.log"
    log.write_text(f"epoch 1\n{line}\n")
    assert explain_logs([log])[0] is not None


NCCL_FAILED = """{0}Traceback (most recent call last):
{0}  File "/home/user/train.py", line 12, in <module>
{0}    dist.barrier()
{0}torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:275, {1} (run with NCCL_DEBUG=WARN), NCCL version 2.21.5
{0}{2}
{0}Last error:
{0}{3}
"""
SYSTEM = "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error."


@pytest.mark.parametrize(
    ("usage", "kind", "last", "code"),
    [
        (
            "invalid usage",
            "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.",
            "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000",
            "duplicate-gpu",
        ),
        (
            "unhandled system error",
            SYSTEM,
            "socketStartConnect: Connect to 192.168.19.14<52822> failed : No route to host",
            "nccl-interface",
        ),
        ("unhandled system error", SYSTEM, "", "nccl-system-error"),
    ],
)
@pytest.mark.parametrize("label", ["", "[rank1]: "])
def test_the_last_error_of_nccl_tells_what_failed(tmp_path, usage, kind, last, code, label):
    log = tmp_path / "job.log"
    log.write_text(NCCL_FAILED.format(label, usage, kind, last))
    found, _ = explain_logs([log])
    assert found is not None
    assert found.code == code
    assert not last or last in found.quotes[-1].text


@pytest.mark.parametrize(
    "line",
    [
        "wandb: Network error (ConnectTimeout), entering retry loop.",
        "[W socket.cpp:663] [c10d] The client socket has failed to connect to [node1]:29500 (errno: 97 - Address "
        "family not supported by protocol).",
    ],
)
def test_what_is_tried_again_is_no_failure(tmp_path, line):
    log = tmp_path / "job.log"
    log.write_text(f"epoch 1\n{line}\nTraining complete.\n")
    assert explain_logs([log])[0] is None


ENDED_BY_TORCHRUN = """[rank0]: RuntimeError: Read error [127.0.0.1]:15254: Connection reset by peer
E1122 18:43:37 7731 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -15) local_rank: 1 (pid: 2)
train.py FAILED
Failures:
[1]:
  time      : 2026-11-22_18:43:37
  host      : node01
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 1)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 1
------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-22_18:43:36
  host      : node01
  rank      : 1 (local_rank: 1)
  exitcode  : -15 (pid: 2)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 2
"""


def test_ranks_that_torchrun_ended_do_not_share_the_cause(tmp_path):
    log = tmp_path / "job.log"
    log.write_text(ENDED_BY_TORCHRUN)
    found, _ = explain_logs([log])
    assert found is not None
    assert found.rank == 1


LOST_A_PEER = """[rank0]: epoch 3
[rank1]: epoch 3, done
[rank2]: epoch 3
[rank2]: RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:14733.
[rank0]: RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:18124.
train.py FAILED
Root Cause (first observed failure):
[0]:
  time      : 2026-11-22_18:43:36
  host      : node01
  rank      : 2 (local_rank: 2)
  exitcode  : 1 (pid: 2)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
"""


@pytest.mark.parametrize("label", ["[rank1]: ", "rank 1 "])
def test_a_rank_that_ended_without_an_error_is_named_if_the_others_lost_it(tmp_path, label):
    log = tmp_path / "job.log"
    log.write_text(LOST_A_PEER.replace("[rank1]: ", label))
    found, _ = explain_logs([log])
    assert found is not None
    assert "because of another rank" in found.message
    assert found.fix.startswith("rank 1 wrote no error: begin there")
