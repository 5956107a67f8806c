"""sbatch, salloc and scancel: commands, and what answers mean. Texts marked * are recorded from SLURM 22.05."""

from __future__ import annotations

import pytest
from scheduler_samples import SCRIPT, SITE, job, said

from rankup.errors import RankupError
from rankup.schedulers.base import scheduler_named
from rankup.sites.site import Slurm

SLURM = scheduler_named("slurm")
FAILED = "sbatch: error: Batch job submission failed: "


def test_submit_names_the_script_and_leaves_the_rest_to_its_directives():
    assert SLURM.submit_command(SCRIPT, job(nodes=2), SITE) == ["sbatch", "--parsable", str(SCRIPT)]


def test_a_job_waits_for_others_and_not_for_ever():
    command = SLURM.submit_command(SCRIPT, job(after=("12", "13_4", "14;east")), SITE)
    assert command[2:-1] == ["--dependency=afterok:12:13_4:14", "--kill-on-invalid-dep=yes"]


def test_a_job_waits_for_the_end_of_others_however_they_end():
    command = SLURM.submit_command(SCRIPT, job(after_any=("12", "14;east")), SITE)
    assert command[2:-1] == ["--dependency=afterany:12:14"]
    command = SLURM.submit_command(SCRIPT, job(after=("11",), after_any=("12",)), SITE)
    assert command[2:-1] == ["--dependency=afterok:11,afterany:12", "--kill-on-invalid-dep=yes"]


def test_a_successor_begins_however_the_job_before_it_ended():
    command = SLURM.successor_command(SCRIPT, job(after=("1",)), SITE, "12")
    assert command == ["sbatch", "--parsable", "--dependency=afterany:12", str(SCRIPT)]


@pytest.mark.parametrize(("there", "asked"), [(False, "--requeue"), (True, "--requeue=expedite")])
def test_a_requeue_is_expedited_where_slurm_has_that(there: bool, asked: str):
    site = SITE.model_copy(update={"slurm": Slurm(expedite=there)})
    assert asked in SLURM.directives(job(nodes=2), site, "job.log")


def test_account_and_queue_beat_what_the_login_shell_says():
    command = SLURM.submit_command(SCRIPT, job(account="lab", queue="gpu"), SITE)
    assert command[2:-1] == ["--account=lab", "--partition=gpu"]


def test_a_raw_directive_beats_the_queue():
    command = SLURM.submit_command(SCRIPT, job(queue="gpu", directives=("-p long",)), SITE)
    assert command == ["sbatch", "--parsable", str(SCRIPT)]


def test_an_interactive_shell_gets_the_same_resources():
    command = SLURM.interactive_command(job(nodes=2, directives=("--qos=short", "-C 'a100 | h100'")), SITE)
    assert command[0] == "salloc"
    assert "--nodes=2" in command
    at = command.index("srun")
    assert command[at - 3 : at] == ["--qos=short", "-C", "a100 | h100"]
    assert command[at + 1 : -1] == ["--interactive", "--preserve-env", "--pty"]


@pytest.mark.parametrize(
    ("out", "job_id"),
    [
        ("123\n", "123"),
        ("123;east\n", "123;east"),
        ("--> Verifying valid submit host...OK\n\n123\n", "123"),
        ("Submitted batch job 123\n", "123"),  # where sbatch is a wrapper that knows no --parsable
    ],
)
def test_the_id_is_read(out: str, job_id: str):
    assert SLURM.read_submit(said(out), job()) == job_id


def test_success_without_an_id_is_an_error():
    with pytest.raises(RankupError, match="no job id") as error:
        SLURM.read_submit(said("welcome\n"), job())
    assert error.value.exit_code == 1
    assert error.value.context == "welcome"


REFUSALS = [
    # *
    (
        "sbatch: error: invalid partition specified: nope\n" + FAILED + "Invalid partition name specified\n",
        "unknown-queue",
        "--partition nope",
    ),
    # *
    (FAILED + "Required partition not available (inactive or drain)", "queue-closed", "--partition nope"),
    # *
    (FAILED + "User's group not permitted to use this partition", "queue-denied", "--partition nope"),
    # *
    (FAILED + "Requested node configuration is not available", "too-large", "--gpus-per-node 9"),
    # *
    ("sbatch: error: Invalid generic resource (gres) specification", "bad-gpus", "--gpus-per-node 9"),
    # *
    (
        "sbatch: error: Memory specification can not be satisfied\n"
        + FAILED
        + "Requested node configuration is not available\n",
        "too-large",
        "--mem 9999G",
    ),
    # *
    ("sbatch: error: Invalid --mem specification", "too-large", "--mem"),
    # *
    (FAILED + "Job dependency problem", "bad-dependency", "--after 77"),
    # *
    (FAILED + "Invalid job array specification", "bad-array", "--array 0-9999999"),
    # *
    (FAILED + "Requested reservation is invalid", "bad-directive", "--directive '--reservation"),
    # *
    (FAILED + "Invalid feature specification", "bad-directive", "--directive '--constraint"),
    # *
    ("sbatch: error: Invalid --time specification", "bad-time", "--time 72:00:00"),
    # *
    (FAILED + "Node count specification invalid", "too-large", "--nodes 9"),
    # *
    ('sbatch: error: "x" is not a valid node count', "too-large", "--nodes"),
    # *
    ('sbatch: error: Invalid numeric value "x" for --cpus-per-task.', "too-large", "--cpus-per-task 99"),
    # *
    ("sbatch: error: Invalid --signal specification", "bad-directive", "--directive"),
    # *
    (
        "sbatch: error: Problem talking to database\nsbatch: error: 'east' can't be reached now, or it is an invalid "
        "entry for --cluster.  Use 'sacctmgr list clusters' to see available clusters.\n",
        "bad-directive",
        "--clusters",
    ),
    # *
    (FAILED + "Invalid license specification", "bad-directive", "--directive"),
    # *
    (FAILED + "Invalid node name specified", "bad-directive", "--directive"),
    # *
    (
        "sbatch: unrecognized option '--bogus=1'\nTry \"sbatch --help\" for more information",
        "bad-directive",
        "--directive",
    ),
    # *
    ("sbatch: error: Invalid directive found in batch script: hello", "bad-directive", "--directive"),
    # *
    (
        "sbatch: error: Batch script contains DOS line breaks (\\r\\n)\nsbatch: error: instead of expected UNIX line "
        "breaks (\\n).",
        "bad-script",
        "--pre",
    ),
    # *
    (
        "sbatch: error: This does not look like a batch script.  The first\nsbatch: error: line must start with #! "
        "followed by the path to an interpreter.\nsbatch: error: For instance: #!/bin/sh\n",
        "bad-script",
        "rankup render",
    ),
    # *
    ("sbatch: error: Unable to open file /scratch/job.sh", "bad-script", "rankup render"),
    # Those that need accounting or limits, as users of large clusters report them.
    (
        FAILED + "Invalid account or account/partition combination specified",
        "bad-account",
        "--account lab",
    ),
    (
        FAILED + "Requested time limit is invalid (missing or exceeds some limit)",
        "bad-time",
        "--time 72:00:00",
    ),
    (FAILED + "No partition specified or system default partition", "missing-queue", "--partition"),
    (FAILED + "Invalid qos specification", "bad-directive", "--qos"),
    (
        "sbatch: error: CPU count per node can not be satisfied\n"
        + FAILED
        + "Requested node configuration is not available",
        "too-large",
        "--cpus-per-task 99",
    ),
    (
        "sbatch: error: QOSMaxSubmitJobPerUserLimit\n"
        + FAILED
        + "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
        "too-many-jobs",
        "rankup status",
    ),
    (
        "sbatch: error: QOSMaxWallDurationPerJobLimit\n"
        + FAILED
        + "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
        "bad-time",
        "--time 72:00:00",
    ),
    (
        "sbatch: error: QOSMaxGRESPerJob\n" + FAILED + "Job violates accounting/QOS policy",
        "bad-gpus",
        "--gpus-per-node 9",
    ),
    (
        "sbatch: error: AssocMaxNodePerJobLimit\n" + FAILED + "Job violates accounting/QOS policy",
        "too-large",
        "--nodes 9",
    ),
    (
        FAILED + "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
        "over-limit",
        "--account lab",
    ),
]
TOO_FULL = ("too-many-jobs", "queue-closed")


@pytest.mark.parametrize(("words", "code", "flag"), REFUSALS)
def test_a_refusal_is_one_sentence_that_names_the_flag(words: str, code: str, flag: str):
    spec = job(
        queue="nope", account="lab", nodes=9, gpus_per_node=9, cpus_per_task=99, mem="9999G", time="72h",
        array="0-9999999", after=("77",),
    )  # fmt: skip
    with pytest.raises(RankupError) as error:
        SLURM.read_submit(said(err=words, code=1), spec)
    assert error.value.code == code
    assert flag in error.value.message + error.value.hint
    assert words.split("\n")[0].split("  ")[0] in error.value.context
    assert error.value.exit_code == (1 if code in TOO_FULL else 2)
    assert "\n" not in error.value.message + error.value.context + error.value.hint


@pytest.mark.parametrize(
    "words",
    [
        FAILED + "Unable to contact slurm controller (connect failure)",  # *
        "sbatch: error: s_p_parse_file: cannot stat file /nowhere: No such file or directory, retrying in 1sec up to "
        "60sec\nsbatch: error: ClusterName needs to be specified\n"
        "sbatch: fatal: Unable to process configuration file\n",  # *
        "sbatch: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\nsbatch: error: fetch_config: DNS "
        "SRV lookup failed\nsbatch: fatal: Could not establish a configuration source\n",
        FAILED + "Socket timed out on send/recv operation",
        "sbatch: error: If munged is up, restart with --num-threads=10\nsbatch: error: Munge encode failed: Failed to "
        "access socket\n" + FAILED + "Protocol authentication error",
    ],
)
def test_an_unreachable_controller_is_not_the_users_fault(words: str):
    with pytest.raises(RankupError) as error:
        SLURM.read_submit(said(err=words, code=1), job())
    assert (error.value.code, error.value.exit_code) == ("scheduler-unreachable", 1)


def test_a_machine_without_slurm():
    with pytest.raises(RankupError, match="sbatch is not on this machine") as error:
        SLURM.read_submit(said(err="sbatch: No such file or directory", code=127), job())
    assert (error.value.code, error.value.exit_code) == ("scheduler-missing", 2)


def test_a_controller_that_never_answers():
    with pytest.raises(RankupError, match="no answer") as error:
        SLURM.read_submit(said(err="sbatch: no answer within 120 s", code=124), job())
    assert error.value.exit_code == 1


def test_words_that_nobody_foresaw_are_passed_on():
    words = (
        "sbatch: error: Dear user,\nsbatch: error: please be nice to {others}.\n"
        + FAILED
        + "Unspecified error"
    )
    with pytest.raises(RankupError) as error:
        SLURM.read_submit(said(err=words, code=1), job())
    assert error.value.code == "scheduler-refused"
    assert "please be nice to {others}." in error.value.context


def test_cancel_takes_tasks_of_arrays_and_names_the_cluster():
    assert SLURM.cancel_command(["12", "13_4"]) == ["scancel", "12", "13_4"]
    assert SLURM.cancel_command(["12;east"]) == ["scancel", "--clusters=east", "12"]


def test_jobs_of_two_clusters_are_not_cancelled_at_once():
    # scancel --clusters=east,west 12 13 would end two jobs too many.
    with pytest.raises(RankupError, match="different clusters"):
        SLURM.cancel_command(["12;east", "13;west"])


@pytest.mark.parametrize(
    ("code", "err"),
    [
        (0, ""),  # *, also for an id that SLURM has forgotten
        (1, "scancel: error: Kill job error on job id 12: Invalid job id specified\n"),
        (0, "scancel: error: Kill job error on job id 12: Job/step already completing or completed\n"),
    ],
)
def test_a_job_that_had_ended_counts_as_cancelled(code: int, err: str):
    assert SLURM.read_cancel(said(err=err, code=code)) is None


@pytest.mark.parametrize(
    ("code", "err", "expected"),
    [
        # *
        (210, "scancel: error: Kill job error on job id 20: Access/permission denied\n", "not-your-job"),
        # Old versions end with 0 even so.
        (0, "scancel: error: Kill job error on job id 20: Access/permission denied\n", "not-your-job"),
        (
            1,
            "scancel: error: Kill job error on job id 1: Invalid job id specified\n"
            "scancel: error: Kill job error on job id 20: Access/permission denied\n",
            "not-your-job",
        ),
        # *
        (
            8,
            "scancel: error: Kill job error on job id 1: Unable to contact slurm controller (connect failure)\n",
            "scheduler-unreachable",
        ),
        (127, "scancel: No such file or directory", "scheduler-missing"),
        (1, "", "scheduler-refused"),
    ],
)
def test_a_job_that_still_lives_is_an_error(code: int, err: str, expected: str):
    with pytest.raises(RankupError) as error:
        SLURM.read_cancel(said(err=err, code=code))
    assert error.value.code == expected
