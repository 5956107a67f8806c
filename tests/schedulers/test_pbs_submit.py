"""qsub and qdel: the commands, and what their answers mean. Texts marked * are recorded from OpenPBS 23.06."""

from __future__ import annotations

import pytest
from scheduler_samples import SCRIPT, SITE, job, said

from rankup.errors import RankupError
from rankup.schedulers.base import scheduler_named

PBS = scheduler_named("pbs")


def test_submit_names_the_script_and_leaves_the_rest_to_its_directives():
    assert PBS.submit_command(SCRIPT, job(nodes=2, queue="gpu"), SITE) == ["qsub", str(SCRIPT)]


def test_a_job_waits_for_others():
    command = PBS.submit_command(SCRIPT, job(after=("12.head", "13[].head")), SITE)
    assert command == ["qsub", "-W", "depend=afterok:12.head:13[].head", str(SCRIPT)]


def test_a_job_waits_for_the_end_of_others_however_they_end():
    command = PBS.submit_command(SCRIPT, job(after_any=("12.head",)), SITE)
    assert command == ["qsub", "-W", "depend=afterany:12.head", str(SCRIPT)]
    command = PBS.submit_command(SCRIPT, job(after=("11.head",), after_any=("12.head", "13[].head")), SITE)
    assert command[2] == "depend=afterok:11.head,afterany:12.head:13[].head"


def test_a_job_can_be_told_once_more_what_it_waits_for():
    command = PBS.wait_again_command("14.head", job(after=("11.head",), after_any=("12.head", "13[].head")))
    assert command == ["qalter", "-W", "depend=afterok:11.head,afterany:12.head:13[].head", "14.head"]
    assert PBS.wait_again_command("14.head", job()) == []


def test_a_successor_begins_however_the_job_before_it_ended():
    command = PBS.successor_command(SCRIPT, job(after=("1.head",)), SITE, "12.head")
    assert command == ["qsub", "-W", "depend=afterany:12.head", "-v", "RANKUP_SUCCESSOR=1", str(SCRIPT)]


def test_an_interactive_shell_gets_the_same_resources():
    command = PBS.interactive_command(job(queue="gpu", directives=("-l filesystems=home",)), SITE)
    assert command[:2] == ["qsub", "-I"]
    assert "gpu" in command
    assert command[-2:] == ["-l", "filesystems=home"]


@pytest.mark.parametrize(
    ("out", "job_id"),
    [
        ("0.head\n", "0.head"),  # *
        ("53[].head\n", "53[].head"),  # *
        ("12\n", "12"),
        ("Project: lab\nCharging 4 GPUs\n1234567.pbs-server.example.org\n", "1234567.pbs-server.example.org"),
    ],
)
def test_the_id_is_read(out: str, job_id: str):
    assert PBS.read_submit(said(out), job()) == job_id


def test_success_without_an_id_is_an_error():
    with pytest.raises(RankupError, match="no job id"):
        PBS.read_submit(said("welcome\n"), job())


USER, CLUSTER = 2, 1
REFUSALS = [
    # * every row of the real qsub
    (170, "qsub: Unknown queue", "unknown-queue", "--queue nope", USER),
    (166, "qsub: Illegal attribute or resource value Resource_List.select", "bad-select", "--nodes 9", USER),
    (166, "qsub: Illegal attribute or resource value select.ncpus", "bad-select", "--cpus-per-task 99", USER),
    (
        166,
        "qsub: Illegal attribute or resource value Resource_List.walltime",
        "bad-time",
        "--time 72:00:00",
        USER,
    ),
    (187, "qsub: Unknown resource Resource_List.bogus", "unknown-resource", "--directive", USER),
    (187, "qsub: Unknown resource: bogus", "unknown-resource", "--directive", USER),
    (1, "qsub: script file:: No such file or directory", "bad-script", "rankup render", USER),
    (
        2,
        "qsub: illegal -W value\nusage: qsub [-a date_time] [-A account_string] [-c interval]\n",
        "bad-dependency",
        "--after 77.head",
        USER,
    ),
    (188, "qsub: Job violates queue and/or server resource limits", "over-limit", "--queue nope", USER),
    (1, "qsub: directive error: -N aft # trailing ", "bad-directive", "--directive", USER),
    (1, "qsub: script contains cr, lf", "bad-script", "--pre", USER),
    (
        162,
        "Connection refused\nqsub: cannot connect to server node1 (errno=15010)",
        "scheduler-unreachable",
        "PBS_SERVER",
        CLUSTER,
    ),
    (
        160,
        "Unknown Host.\nqsub: cannot connect to server nowhere (errno=15008)",
        "scheduler-unreachable",
        "PBS_SERVER",
        CLUSTER,
    ),
    (173, "qsub: Queue is not enabled", "queue-closed", "--queue nope", CLUSTER),
    (175, "qsub: Bad UID for job execution", "bad-user", "ordinary user", USER),
    (1, "qsub: cannot send environment with the job", "unset-variable", "--env", USER),
    # From its list of messages.
    (183, "qsub: No default queue specified", "missing-queue", "--queue NAME", USER),
    (174, "qsub: Access to queue is denied", "queue-denied", "--queue nope", USER),
    (203, "qsub: Invalid Account", "bad-account", "--account lab", USER),
    (200, "qsub: Maximum number of jobs already in queue gpu", "too-many-jobs", "rankup status", CLUSTER),
    (200, "qsub: would exceed queue gpu's per-user limit", "too-many-jobs", "--queue nope", CLUSTER),
    (246, "qsub: Array job exceeds server or queue size limit", "bad-array", "--array 0-9999999", USER),
    (2, "qsub: illegal -J value\nusage: qsub", "bad-array", "--array 0-9999999", USER),
    (2, "qsub: illegal -N value\nusage: qsub", "bad-directive", "--directive", USER),
    # Torque, as its users report it.
    (
        180,
        "qsub: submit error (Job exceeds queue resource limits MSG=cannot locate feasible nodes (nodes file is empty "
        "or all systems are busy))",
        "too-large",
        "--nodes 9",
        USER,
    ),
    (
        180,
        "qsub: Job exceeds queue resource limits MSG=cannot satisfy queue max walltime requirement",
        "bad-time",
        "--time 72:00:00",
        USER,
    ),
    (
        168,
        "qsub: submit error (Unauthorized Request  MSG=user group not allowed)",
        "queue-denied",
        "--queue nope",
        USER,
    ),
    (173, "qsub: Invalid credential", "scheduler-unreachable", "again", CLUSTER),
    (
        184,
        "qsub: submit error (Unknown resource type  Resource_List.select)",
        "bad-select",
        'scheduler = "torque"',
        USER,
    ),
    (1, "qsub: submit error (Unknown queue MSG=cannot locate queue)", "unknown-queue", "--queue nope", USER),
]


@pytest.mark.parametrize(("code", "words", "expected", "flag", "exit_code"), REFUSALS)
def test_a_refusal_is_one_sentence_that_names_the_flag(
    code: int, words: str, expected: str, flag: str, exit_code: int
):
    spec = job(
        queue="nope", account="lab", nodes=9, gpus_per_node=9, cpus_per_task=99, time="72h",
        array="0-9999999", after=("77.head",),
    )  # fmt: skip
    with pytest.raises(RankupError) as error:
        PBS.read_submit(said(err=words, code=code), spec)
    assert error.value.code == expected
    assert flag in error.value.message + error.value.hint
    assert words.split("\n")[0].split("  ")[0].strip() in error.value.context
    assert error.value.exit_code == exit_code
    assert "\n" not in error.value.message + error.value.context + error.value.hint


def test_a_sites_own_rules_are_passed_on():
    # Hooks end qsub with 32, and with whatever words the site chose.
    words = "qsub: Error: You have no core hours left on project tm70."
    with pytest.raises(RankupError) as error:
        PBS.read_submit(said(err=words, code=32), job())
    assert error.value.code == "scheduler-refused"
    assert error.value.context == words


def test_a_machine_without_pbs():
    with pytest.raises(RankupError, match="qsub is not on this machine") as error:
        PBS.read_submit(said(err="qsub: No such file or directory", code=127), job())
    assert (error.value.code, error.value.exit_code) == ("scheduler-missing", 2)


def test_cancel_takes_tasks_of_arrays():
    assert PBS.cancel_command(["12.head", "53[2].head"]) == ["qdel", "12.head", "53[2].head"]


@pytest.mark.parametrize(
    ("code", "err"),
    [
        (0, ""),
        (153, "qdel: Unknown Job Id 99.head\n"),
        (35, "qdel: Job has finished 12.head\n"),
        (35, "qdel: Unknown Job Id 99.head\nqdel: Job has finished 12.head\n"),
        (
            170,
            "qdel: Request invalid for state of job MSG=invalid state for job - COMPLETE 12.head\n",
        ),  # Torque
    ],
)
def test_a_job_that_had_ended_counts_as_cancelled(code: int, err: str):
    assert PBS.read_cancel(said(err=err, code=code)) is None


@pytest.mark.parametrize(
    ("code", "err", "expected"),
    [
        (159, "qdel: Unauthorized Request  12.head\n", "not-your-job"),
        # The last job's code is qdel's, and hides that the first one lives.
        (153, "qdel: Unauthorized Request  12.head\nqdel: Unknown Job Id 99.head\n", "not-your-job"),
        (
            162,
            "Connection refused\nqdel: cannot connect to server head (errno=15010)\n",
            "scheduler-unreachable",
        ),
        (1, "qdel: illegally formed job identifier: abc\n", "bad-job-id"),
        (127, "qdel: No such file or directory", "scheduler-missing"),
        (1, "", "scheduler-refused"),
    ],
)
def test_a_job_that_still_lives_is_an_error(code: int, err: str, expected: str):
    with pytest.raises(RankupError) as error:
        PBS.read_cancel(said(err=err, code=code))
    assert error.value.code == expected
