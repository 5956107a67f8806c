"""What sbatch, squeue and scancel complain about, and which flag of ours to change: the first row that matches."""

from __future__ import annotations

from rankup.schedulers.error_table import ErrorRow

UNREACHABLE = (
    ErrorRow(
        r"Unable to contact slurm controller|Connection refused|Socket timed out|Zero Bytes were transmitted"
        r"|standby mode|configuration source|Rate limit exceeded|Message (receive|send) failure|unable to accept job",
        "scheduler-unreachable",
        "SLURM's controller does not answer",
        "it is the cluster, not the job: try again in some minutes; `scontrol ping` says when it is back",
        exit_code=1,
    ),
    ErrorRow(
        r"munge|authentication (credential|error)|Invalid user id|User not found",
        "scheduler-unreachable",
        "SLURM cannot check who you are",
        "it is the machine, not the job: try another login node, and tell its support if that fails too",
        exit_code=1,
    ),
    ErrorRow(
        r"process configuration file|s_p_parse_file|slurm\.conf",
        "scheduler-unreachable",
        "SLURM's commands find no configuration on this machine",
        "log in to a login node of the cluster; if SLURM_CONF is set, it names no readable file",
        exit_code=1,
    ),
)

SUBMIT = (
    *UNREACHABLE,
    # Where it may run, and who pays.
    ErrorRow(
        r"Invalid partition name",
        "unknown-queue",
        "SLURM has no such partition: {partition}",
        "change --partition: `sinfo -s` lists those you may use",
    ),
    ErrorRow(
        r"No partition specified or system default partition",
        "missing-queue",
        "this SLURM has no default partition, so the job has to name one: {partition}",
        "add --partition NAME: `sinfo -s` lists them",
    ),
    ErrorRow(
        r"Invalid account|InvalidAccount|account is not permitted|AccountNotAllowed",
        "bad-account",
        "the account is missing, or not one that you may use here: {account}",
        "change --account (`sacctmgr -n show assoc user=$USER format=account,partition` lists yours) or --partition",
    ),
    ErrorRow(
        r"group not permitted to use this partition|Access/permission denied",
        "queue-denied",
        "you may not use this partition: {partition}",
        "choose another with --partition, or ask the site for access",
    ),
    ErrorRow(
        r"partition not available \(inactive|Partition in DOWN|submissions disabled",
        "queue-closed",
        "the partition takes no jobs at the moment: {partition}",
        "choose another with --partition (`sinfo -s`), or wait until it is open again",
        exit_code=1,
    ),
    ErrorRow(
        r"Invalid qos|InvalidQOS|QOSNotAllowed",
        "bad-directive",
        "the quality of service (QOS) is unknown, or not allowed with {account} and {partition}",
        "change --directive '--qos=NAME', SBATCH_QOS or --account: `sacctmgr show assoc user=$USER` lists them",
    ),
    # What it asks for.
    ErrorRow(
        r"time limit is invalid|WallDuration|Invalid --time|time limit specification",
        "bad-time",
        "the time limit is missing, or longer than is allowed here: {time}",
        "change --time: `sinfo -o '%P %l'` shows each partition's longest; --max-requeues continues after it",
    ),
    ErrorRow(
        r"Memory (specification can not be satisfied|required by task)|MaxMemP|QOSM\w*Mem|Assoc\w*Mem|Invalid --mem",
        "too-large",
        "no node that the job may have has that much memory: {mem}",
        "lower --mem: `sinfo -o '%P %m'` shows each node's MiB",
    ),
    ErrorRow(
        r"Invalid generic resource|Invalid GRES|Unsupported GRES|GRES option|(QOS|Assoc)\w*GRES|Invalid TRES"
        r"|gpus-per-node",
        "bad-gpus",
        "there are no such GPUs for the job, or not so many: {gpus_per_node}",
        "change --gpus-per-node or --partition: `sinfo -o '%P %G'` shows what nodes have",
    ),
    ErrorRow(
        r"CPU count per node|CPU count specification|More processors requested|(QOS|Assoc)\w*Cpu"
        r"|cpus-per-task|number of cpus|More tasks than|Task count specification",
        "too-large",
        "no node that the job may have has that many cores: {nproc_per_node}, {cpus_per_task}",
        "lower --cpus-per-task: `sinfo -o '%P %c'` shows each node's",
    ),
    ErrorRow(
        r"Node count specification|(QOS|Assoc)\w*Node|valid node count|More nodes requested",
        "too-large",
        "the job may not have that many nodes: {nodes}",
        "lower --nodes: `sinfo -o '%P %D'` shows how many a partition has",
    ),
    ErrorRow(
        r"Invalid feature|Invalid constraint|Invalid preferred feature",
        "bad-directive",
        "no node has the feature that a raw directive (--constraint) asks for",
        "change --directive '--constraint=…': `sinfo -o '%P %f'` lists the features",
    ),
    ErrorRow(
        r"reservation",
        "bad-directive",
        "the reservation that a raw directive names does not exist, or is not for you",
        "change --directive '--reservation=…': `scontrol show reservation` lists them",
    ),
    ErrorRow(
        r"node configuration is not available|partition configuration not available",
        "too-large",
        "no node of this partition has all that the job asks for: {partition}, {gpus_per_node}, {cpus_per_task}, {mem}",
        "lower --gpus-per-node, --cpus-per-task or --mem, or change --partition: `sinfo -o '%P %D %c %m %G'`",
    ),
    # How many.
    ErrorRow(
        r"SubmitJob|JobsLimit|MaxJobCount|JobsPer",
        "too-many-jobs",
        "you have as many jobs here as you may have: this one was not taken",
        "wait until some have ended (`rankup status`), or cancel some; each task of --array counts",
        exit_code=1,
    ),
    ErrorRow(
        r"violates accounting/QOS policy",
        "over-limit",
        "the job breaks a limit of your account or of the partition: {account}, {partition}, {time}, {nodes}",
        "lower --time, --nodes or --gpus-per-node, or wait until jobs have ended; `sacctmgr show qos` lists limits",
    ),
    ErrorRow(
        r"job array specification|Invalid --array",
        "bad-array",
        "SLURM does not take this array: {array}",
        "change --array: indices have to be below MaxArraySize (`scontrol show config | grep MaxArraySize`)",
    ),
    ErrorRow(
        r"dependency",
        "bad-dependency",
        "a job that this one has to wait for is unknown to SLURM: {after}",
        "change --after to the ids of jobs that are in the queue or ended a short time ago (`squeue --me`)",
    ),
    # The script itself.
    ErrorRow(
        r"can't be reached now, or it is an invalid entry for --cluster",
        "bad-directive",
        "the cluster that a raw directive (--clusters) or SBATCH_CLUSTERS names is unknown, or down",
        "change it: `sacctmgr list clusters` lists them",
    ),
    ErrorRow(
        r"Invalid (node name|license)",
        "bad-directive",
        "a raw directive asks for a node or a license that this SLURM does not have",
        "change --directive: `sinfo -N` lists the nodes, `scontrol show licenses` the licenses",
    ),
    ErrorRow(
        r"unrecognized option|invalid option|Invalid directive|requires an argument|ambiguous"
        r"|Invalid --\S+ specification|Invalid numeric value",
        "bad-directive",
        "sbatch does not accept an option after #SBATCH, or its value",
        "change --directive, or the site profile's defaults; `sbatch --help` lists what this version knows",
    ),
    ErrorRow(
        r"DOS line breaks",
        "bad-script",
        "a line of the job script ends with a carriage return (CRLF), as Windows writes them",
        "write --pre and job.toml with plain line ends (dos2unix)",
    ),
    ErrorRow(
        r"Unable to open file|look like a batch script",
        "bad-script",
        "sbatch cannot read the job script, or it does not start with #!",
        "submit what `rankup render` writes, from a file system that this machine sees",
    ),
    ErrorRow(
        r"I/O error writing script|No space left",
        "scheduler-unreachable",
        "SLURM's controller could not store the job",
        "its disk may be full: tell the site's support",
        exit_code=1,
    ),
)

# Said of jobs that need no cancelling any more.
ENDED = r"already completing or completed|Invalid job id specified|has already finished|Job/step already completing"

CANCEL = (
    *UNREACHABLE,
    ErrorRow(
        r"permission denied|not permitted|Operation not permitted",
        "not-your-job",
        "SLURM does not let you cancel this job: it belongs to someone else",
        "`squeue --me` lists yours",
    ),
)
