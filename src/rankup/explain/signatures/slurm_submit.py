"""sbatch, srun and salloc when they do not take what they are asked for."""

from __future__ import annotations

from rankup.explain.signatures.signature import ROOT, Signature

SLURM_SUBMIT = (
    Signature(
        name="step-not-created",
        pattern=(
            "srun: error: (Unable to create step|Unable to confirm allocation"
            r"|Job \S+ step creation temporarily disabled)"
        ),
        level=ROOT,
        what="srun could not start the step",
        cause=("the step asks for more tasks, memory or GPUs than the job has, or another step holds them"),
        fix="give srun no more than #SBATCH asks for; --overlap beside another step",
        example=(
            "srun: error: Unable to create step for job 4711: Requested node configuration is not available"
        ),
    ),
    Signature(
        name="more-than-allocated",
        pattern=r"Only allocated \d+ nodes? asked for \d+|More processors requested than permitted",
        level=ROOT,
        what="srun asks for more than the job has",
        cause="the numbers of nodes or tasks of srun and #SBATCH differ",
        fix="leave -N and -n of srun out, or take them from the same numbers",
        example="srun: error: Only allocated 2 nodes asked for 4",
    ),
    Signature(
        name="invalid-partition",
        pattern="[Ii]nvalid partition",
        level=ROOT,
        what="SLURM has no such partition",
        cause="the partition's name is wrong, or the partition is of another cluster",
        fix="`sinfo -s` lists the partitions that you may use",
        example="sbatch: error: invalid partition specified: gpu_long",
    ),
    Signature(
        name="invalid-account",
        pattern="[Ii]nvalid account or account/partition|InvalidAccount|Invalid qos|Invalid account",
        level=ROOT,
        what="SLURM does not take this account or QOS",
        cause="the account is missing, wrong, or may not use the partition",
        fix="`sacctmgr -n show assoc user=$USER format=account,partition,qos` lists yours",
        example=(
            "sbatch: error: Batch job submission failed: Invalid account or account/partition "
            "combination specified"
        ),
    ),
    Signature(
        name="invalid-gres",
        pattern="Invalid generic resource|Invalid Trackable RESource|Invalid GRES",
        level=ROOT,
        what="SLURM does not know the requested GPUs",
        cause="the name or type in --gres or --gpus does not exist here",
        fix="`sinfo -o '%P %G'` lists each partition's",
        example=("sbatch: error: Batch job submission failed: Invalid generic resource (gres) specification"),
    ),
    Signature(
        name="not-available",
        pattern=(
            "Requested node configuration is not available|Node count specification invalid"
            "|CPU count per node can not be satisfied|Memory specification can not be satisfied"
        ),
        level=ROOT,
        what="no node of the partition has what the job asks for",
        cause=(
            "more GPUs, CPUs or memory per node than the nodes of this partition have, or more "
            "nodes than there are"
        ),
        fix="`sinfo -o '%P %D %c %m %G'` shows nodes, CPUs, memory and GPUs of each partition",
        example=("sbatch: error: Batch job submission failed: Requested node configuration is not available"),
        rules=("RK106",),
    ),
    Signature(
        name="time-too-long",
        pattern="Requested time limit is invalid",
        level=ROOT,
        what="the time limit is longer than the partition allows",
        cause="--time exceeds the partition's limit, or is missing",
        fix="`sinfo -o '%P %l'` shows each partition's longest",
        example=(
            "sbatch: error: Batch job submission failed: Requested time limit is invalid (missing "
            "or exceeds some limit)"
        ),
    ),
    Signature(
        name="wrong-directive",
        pattern=(
            "(sbatch|srun|salloc): (unrecognized option|invalid option|option '.*' (requires"
            r"|is ambiguous))|(sbatch|srun|salloc): error: (Invalid --\w|Invalid directive"
            r"|invalid \S+ (specification|value))"
        ),
        level=ROOT,
        what="an option of sbatch or srun is wrong",
        cause="it is mistyped, or not known to this version of SLURM",
        fix="`man sbatch` on the login node lists them",
        example="sbatch: unrecognized option '--gpu-per-node=4'",
        rules=("RK123", "RK134", "RK132"),
    ),
    Signature(
        name="dos-line-ends",
        pattern=r"contains DOS line breaks|\\r': command not found|bad interpreter: .*\^M",
        level=ROOT,
        what="the script has Windows line ends",
        cause="it was edited on Windows: each line ends with an invisible \\r",
        fix="`sed -i 's/\\r$//' job.sh`",
        example="sbatch: error: Batch script contains DOS line breaks (\\r\\n)",
        rules=("RK133",),
    ),
    Signature(
        name="cpus-twice",
        pattern="cpus-per-task set by two different",
        level=ROOT,
        what="SLURM got two values for the CPUs of a task",
        cause=(
            "SLURM_CPUS_PER_TASK and SLURM_TRES_PER_TASK differ, often in a job that is started from a job"
        ),
        fix="unset one of them before srun",
        example=(
            "srun: fatal: cpus-per-task set by two different environment variables "
            "SLURM_CPUS_PER_TASK=8 != SLURM_TRES_PER_TASK=cpu:4"
        ),
        rules=("RK110",),
    ),
    Signature(
        name="gpus-per-task-alone",
        pattern="gpus-per-task.*without",
        level=ROOT,
        what="--gpus-per-task requires a number of tasks",
        cause="SLURM cannot compute how many GPUs that is",
        fix="add --ntasks or --ntasks-per-node",
        example=("sbatch: error: --gpus-per-task used without either --gpus or -n/--ntasks is not allowed."),
        rules=("RK119",),
    ),
    Signature(
        name="slurm-unreachable",
        pattern=(
            "(srun|sbatch): error: (Unable to contact slurm controller"
            "|.*Socket timed out on send/recv|Unable to allocate resources: Unable to contact)"
        ),
        level=ROOT,
        what="SLURM's controller did not answer",
        cause="it is the cluster, not the job",
        fix="try again in some minutes; `scontrol ping` says when it is back",
        example="srun: error: Unable to contact slurm controller (connect failure)",
    ),
    Signature(
        name="submit-failed",
        pattern=(
            "(sbatch|srun|salloc): error: (Batch job submission failed|Unable to allocate resources"
            r"|AssocMaxSubmitJobLimit|QOSMax\w+)"
        ),
        level=ROOT,
        what="SLURM did not take the job",
        cause="the message says what it does not accept",
        fix="change what the message names; `rankup submit` checks it before",
        example=(
            "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job "
            "submit limit, user's size and/or time limits)"
        ),
    ),
)
