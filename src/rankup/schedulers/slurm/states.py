"""SLURM's words for a job's state and for why it waits or ended, in ours."""

from __future__ import annotations

import re

from rankup.schedulers.base import JobState

_STATES = {
    JobState.PENDING: "PENDING REQUEUED REQUEUE_FED REQUEUE_HOLD RESV_DEL_HOLD SPECIAL_EXIT EXPEDITING",
    # What holds nodes is running, also while they boot, while it is suspended, and until its last process is gone.
    JobState.RUNNING: "RUNNING CONFIGURING COMPLETING STAGE_OUT SUSPENDED STOPPED SIGNALING RESIZING POWER_UP_NODE",
    JobState.DONE: "COMPLETED",
    JobState.FAILED: "FAILED TIMEOUT NODE_FAIL OUT_OF_MEMORY BOOT_FAIL DEADLINE PREEMPTED LAUNCH_FAILED RECONFIG_FAIL",
    JobState.CANCELLED: "CANCELLED REVOKED",
}
SUSPENDED = ("SUSPENDED", "STOPPED")
STATE_OF = {word: state for state, words in _STATES.items() for word in words.split()}

# Patterns of a whole reason (the first that matches counts) and what they mean to the owner of a job that lives.
_WAITS = (
    (r"None", ""),
    (r"Priority", "waits for jobs with a higher priority"),
    (r"Resources", "waits for free nodes, next in line"),
    (
        r"BeginTime",
        "waits for its start time; requeued: SLURM waits about two minutes before it starts again",
    ),
    (r"Dependency", "waits for the jobs of --after"),
    (r"DependencyNeverSatisfied", "will never start: a job of --after did not end well; cancel it"),
    (r"JobHeldUser", "held by you: `scontrol release` lets it go"),
    (r"JobHeldAdmin", "held by an administrator, or by SLURM after a failed start: ask the site"),
    (r"JobHoldMaxRequeue", "held: requeued more often than the site allows"),
    (
        r"job requeued in held state|launch failed requeued held",
        "held after a failed start: `scontrol release` retries",
    ),
    (
        r"ReqNodeNotAvail.*",
        "waits for nodes that are down, drained or reserved, maybe for a maintenance before its end",
    ),
    (r"PartitionTimeLimit", "will not start: --time is longer than its partition allows"),
    (r"PartitionNodeLimit", "will not start: --nodes is not what its partition allows, or nodes are down"),
    (
        r"PartitionConfig|BadConstraints|Constraints",
        "will not start: its partition does not have, or does not allow, what it asks for",
    ),
    (r"PartitionDown|PartitionInactive", "waits: its partition is closed"),
    (r"Reservation.*", "waits for its reservation"),
    (r"JobArrayTaskLimit", "waits: the %-limit of --array tasks run already"),
    (
        r"AssocGrp\w*Minutes\w*|AssocGrpBilling\w*",
        "will not start: the account's budget is used up, or too small for it",
    ),
    (
        r"InvalidAccount|AccountNotAllowed",
        "will not start: the account may not use its partition (--account)",
    ),
    (r"InvalidQOS|QOSNotAllowed", "will not start: the QOS is not allowed (--directive '--qos=…')"),
    (
        r"QOS(Max|Grp)?\w*(GRES|Gres)\w*PerUser|MaxGRESPerAccount",
        "waits: you use as many GPUs as you may at a time",
    ),
    (r"(QOS|Assoc)Max\w*Wall\w*", "will not start: --time is longer than is allowed here"),
    (
        r"(QOS|Assoc)\w*PerJob\w*|(QOS|Assoc)Max\w*PerNode",
        "will not start: it asks for more than one job may have",
    ),
    (
        r"(QOS|Assoc)?\w*(PerUser|PerAccount)\w*|AssocMaxJobsLimit",
        "waits: you use as much as you may at a time",
    ),
    (r"(QOS|Assoc)Grp\w*", "waits: your group uses as much as it may at a time"),
    (r"Licenses", "waits for licenses"),
    (r"Prolog|Cleaning", "its nodes are being prepared"),
)
# A job that has ended keeps the last reason for which it waited, which says nothing any more.
_ENDED = (
    (r"DependencyNeverSatisfied", "never started: a job of --after did not end well"),
    (r"TimeLimit", "ran out of its time limit (--time)"),
    (r"OutOfMemory", "used more memory than requested (--mem)"),
    (r"NodeDown|NodeFail", "one of its nodes failed"),
    (r"JobLaunchFailure", "its script was killed, or could not be started"),
    (r"BadConstraints", "no node has what it asks for"),
)
_BY_STATE = {
    "TIMEOUT": "ran out of its time limit (--time)",
    "OUT_OF_MEMORY": "used more memory than requested (--mem)",
    "NODE_FAIL": "one of its nodes failed",
    "BOOT_FAIL": "its nodes did not boot",
    "PREEMPTED": "preempted by a job with a higher priority",
    "DEADLINE": "did not end before its deadline",
    "REVOKED": "ran on another cluster of the federation",
    "CONFIGURING": "its nodes are starting up",
    "COMPLETING": "its last processes are ending",
    "SUSPENDED": "another job has its nodes, or an administrator has stopped it",
    "STOPPED": "its processes are stopped until they are continued",
}


def state_of(native: str) -> JobState:
    """``CANCELLED by 1000`` counts as CANCELLED; a word that a newer SLURM may bring is taken for a job that lives."""
    return STATE_OF.get(native.split()[0].rstrip("+") if native.strip() else "", JobState.RUNNING)


def reason_of(native: str, reason: str) -> str:
    """Why a job waits or how it ended, in words for its owner, with SLURM's own behind them."""
    if native in _BY_STATE:
        return _BY_STATE[native]
    reason = reason.strip().strip("()")
    ended = state_of(native).ended
    for pattern, words in _ENDED if ended else _WAITS:
        if re.fullmatch(pattern, reason, re.IGNORECASE):
            return f"{words} ({reason})" if words else ""
    return "" if ended else reason
