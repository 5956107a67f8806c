"""What qsub, qstat and qdel complain about, and which flag of ours to change. The first row that matches counts.

The texts are those of OpenPBS and PBS Pro, and of Torque, which says ``qsub: submit error (… MSG=…)``.
"""

from __future__ import annotations

from rankup.schedulers.error_table import ErrorRow

UNREACHABLE = (
    ErrorRow(
        r"cannot connect|could not connect|Connection refused|Unknown Host|No server specified|server shutting down"
        r"|Communication failure|Server busy|Batch protocol error|No free connections|Can not establish connection"
        r"|connection table full|Time out",
        "scheduler-unreachable",
        "the PBS server does not answer",
        "it is the cluster, not the job: try again in some minutes; PBS_SERVER, if it is set, names the server",
        exit_code=1,
    ),
    ErrorRow(
        r"(Invalid|Expired) credential|munge|trqauthd|pbs_iff|authenticat",
        "scheduler-unreachable",
        "the PBS server cannot check who you are",
        "try again in a minute (some servers say this when they are asked too often), or from another login node",
        exit_code=1,
    ),
)

_SIZES = "{nodes}, {gpus_per_node}, {cpus_per_task}, {mem}, {time}"
SUBMIT = (
    *UNREACHABLE,
    # Where it may run, and who pays.
    ErrorRow(
        r"Unknown queue|illegal -q value",
        "unknown-queue",
        "PBS has no such queue: {queue}",
        "change --queue: `qstat -Q` lists them",
    ),
    ErrorRow(
        r"No default queue",
        "missing-queue",
        "this PBS has no default queue, so the job has to name one: {queue}",
        "add --queue NAME: `qstat -Q` lists them",
    ),
    ErrorRow(
        r"Queue is not enabled|Queue is currently not available",
        "queue-closed",
        "the queue takes no jobs at the moment: {queue}",
        "choose another with --queue (`qstat -Q`: Ena yes), or wait until it is open again",
        exit_code=1,
    ),
    ErrorRow(
        r"Access to queue is denied|Unauthorized Request",
        "queue-denied",
        "you may not use this queue: {queue}, {account}",
        "choose another with --queue, change --account, or ask the site for access",
    ),
    ErrorRow(
        r"Invalid Account|Account_Name|illegal -A value|(invalid|missing|unknown|no) (account|project)",
        "bad-account",
        "the account is missing, or not one that you may use here: {account}",
        "change --account to a project of yours",
    ),
    ErrorRow(
        r"Bad [UG]ID",
        "bad-user",
        "PBS runs no jobs of this user: it does not know it on its nodes, or it is root",
        "submit as an ordinary user of the cluster",
    ),
    # What it asks for.
    ErrorRow(
        r"Resource_List\.(select|nodes|place)\b|value (for )?select\.|node\(s\) specification",
        "bad-select",
        "PBS does not understand the nodes that the job asks for: {nodes}, {gpus_per_node}, {cpus_per_task}",
        'change these, [pbs] select and place in the site profile, or --directive; Torque needs scheduler = "torque"',
    ),
    ErrorRow(
        r"walltime",
        "bad-time",
        "PBS does not take this time limit, or it is longer than the queue allows: {time}",
        "change --time: `qstat -Qf QUEUE` shows resources_max.walltime; --max-requeues continues after it",
    ),
    ErrorRow(
        r"Unknown resource",
        "unknown-resource",
        "this PBS does not know a resource that the job asks for (ngpus comes with {gpus_per_node})",
        "see its name below: change [pbs] select in the site profile, or --directive",
    ),
    ErrorRow(
        r"cannot locate feasible nodes",
        "too-large",
        f"no nodes of this cluster have all that the job asks for: {_SIZES}",
        "lower --nodes, --gpus-per-node or --cpus-per-task: `pbsnodes -a` shows what nodes have",
    ),
    ErrorRow(
        r"Maximum number of jobs|would exceed .*limit|per-user limit|too many jobs",
        "too-many-jobs",
        "you have as many jobs, or as much of a resource, in this queue as you may have: {queue}",
        "wait until some have ended (`rankup status`), or cancel some; each task of --array counts",
        exit_code=1,
    ),
    ErrorRow(
        r"violates queue and/or server resource limits|exceeds queue resource limits|exceeds allowable"
        r"|rejected by all possible destinations",
        "over-limit",
        f"the job asks for more, or less, than its queue allows ({{queue}}): {_SIZES}",
        "change these flags, or --queue: `qstat -Qf QUEUE` shows its resources_min and resources_max",
    ),
    # How many.
    ErrorRow(
        r"illegal -[Jt] value|Array job exceeds|job arrays|Job Array Request|Illegal .*array_indices",
        "bad-array",
        "PBS does not take this array: {array}",
        "change --array, such as 0-9 or 0-99%4; PBS itself has no lists such as 1,3,7",
    ),
    ErrorRow(
        r"illegal -W value|Job Dependency|did not satisfy dependency|depend",
        "bad-dependency",
        "PBS does not take the jobs that this one has to wait for: {after}",
        "change --after to whole ids as qsub prints them, such as 12.server",
    ),
    # The script itself.
    ErrorRow(
        r"contains cr, lf",
        "bad-script",
        "a line of the job script ends with a carriage return (CRLF), as Windows writes them",
        "write --pre and job.toml with plain line ends (dos2unix)",
    ),
    ErrorRow(
        r"directive error|illegal -\w value|invalid option|unrecognized option|Illegal attribute or resource value"
        r"|Undefined attribute|Cannot set attribute|Mutually exclusive",
        "bad-directive",
        "qsub does not accept an option after #PBS",
        "change --directive, or the site profile's defaults: one option each, nothing after it, no # comment",
    ),
    ErrorRow(
        r"cannot send environment",
        "unset-variable",
        "a variable that the job is to take along is not set here",
        "set it before, or give it a value: --env NAME=VALUE",
    ),
    ErrorRow(
        r"script file|Unable to open script|cannot access script",
        "bad-script",
        "qsub cannot read the job script",
        "submit what `rankup render` writes, from a file system that this machine sees",
    ),
    ErrorRow(
        r"PBS server internal error|System error|No space left",
        "scheduler-unreachable",
        "the PBS server could not store the job",
        "its disk may be full: tell the site's support",
        exit_code=1,
    ),
)

# Said of jobs that need no cancelling any more; Torque's completed ones are in an "invalid state".
ENDED = r"(?i)Unknown Job Id|Job has finished|state for job - COMPLETE|Job already in exit state|already in progress"

CANCEL = (
    *UNREACHABLE,
    ErrorRow(
        r"Unauthorized Request",
        "not-your-job",
        "PBS does not let you cancel this job: it belongs to someone else",
        "`qstat -u $USER` lists yours",
    ),
    ErrorRow(
        r"illegally formed job identifier",
        "bad-job-id",
        "this is not the id of a PBS job",
        "ids are as qsub printed them, such as 12.server or 12[].server",
    ),
)
