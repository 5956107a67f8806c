"""PBS (OpenPBS, PBS Professional, Torque) in a job's log, qsub, and mpiexec."""

from __future__ import annotations

from rankup.explain.signatures.signature import FALLOUT, ROOT, WEAK, Signature

PBS = (
    Signature(
        name="pbs-time-limit",
        pattern=r"PBS: job killed: walltime|job killed: walltime \d+ exceeded limit",
        level=ROOT,
        what="the job reached its time limit",
        cause="it required more than its walltime, or it hung",
        fix=("save snapshots and resubmit (`rankup submit --max-requeues 5`), or ask for more walltime"),
        example="=>> PBS: job killed: walltime 3622 exceeded limit 3600",
        exits=(-15, -9, 143, 137, 271),
    ),
    Signature(
        name="pbs-memory",
        pattern=(
            "PBS: job killed: (v?mem|pmem|cgroup)|Cgroup (mem|memsw) limit exceeded"
            r"|job killed: .*mem\w* .*exceeded limit"
        ),
        level=ROOT,
        what="the job used more host memory than it may",
        cause=("PBS or the kernel killed it because mem or vmem was reached; this is not the GPU's memory"),
        fix=(
            "ask for more (mem= in select), use fewer loader workers, and do not load all data on each rank"
        ),
        example="=>> PBS: job killed: mem 33554944kb exceeded limit 33554432kb",
        rules=("RK308",),
        exits=(-9, 137),
    ),
    Signature(
        name="pbs-cpu-limit",
        pattern=r"PBS: job killed: n?cpu\w* .*exceeded limit",
        level=ROOT,
        what="the job used more CPUs than it asked for",
        cause="PBS compares the CPU time with ncpus",
        fix="ask for more ncpus, or limit threads (OMP_NUM_THREADS) and loader workers",
        example="=>> PBS: job killed: ncpus 5.2 exceeded limit 4 (sum)",
        rules=("RK121",),
        exits=(-9, -15, 137, 143),
    ),
    Signature(
        name="pbs-node-failure",
        pattern=(
            r"PBS: job killed: node .* requested job die|Job .* killed: node \d+ .*died"
            "|not all moms? responded|Unable to Run Job, MoM rejected"
        ),
        level=ROOT,
        what="a node of the job failed",
        cause="PBS lost contact with it: the program is not to blame",
        fix="submit again, from the last snapshot",
        example="=>> PBS: job killed: node 2 (node03) requested job die, code 15009",
        exits=(-9, -15, 137, 143),
    ),
    Signature(
        name="pbs-deleted",
        pattern=(
            "PBS: job killed$|terminated by qdel|Job deleted at request of|Terminated due to a request from"
        ),
        level=WEAK,
        what="the job was deleted",
        cause="somebody called qdel, or the scheduler preempted it",
        fix="`qstat -xf JOB` has the comment",
        example="=>> PBS: job killed",
        likely=True,
        exits=(-15, -9, 143, 137),
    ),
    Signature(
        name="qsub-unknown-queue",
        pattern=("qsub: (Unknown queue|Queue is not enabled|Access to queue is denied|Unauthorized Request)"),
        level=ROOT,
        what="PBS does not take the job in this queue",
        cause="the queue does not exist, is closed, or is not for you",
        fix="`qstat -Q` lists the queues",
        example="qsub: Unknown queue",
    ),
    Signature(
        name="qsub-limits",
        pattern=(
            "qsub: (Job (exceeds|violates) queue|.*Resource_List"
            "|Illegal attribute or resource value|Unknown resource)"
        ),
        level=ROOT,
        what="the job asks for something that the queue does not give",
        cause="a resource is misspelt, or larger than the queue's limit",
        fix="`qstat -Qf QUEUE` shows its limits",
        example="qsub: Job violates queue and/or server resource limits",
    ),
    Signature(
        name="qsub-failed",
        pattern=(
            r"^qsub: (?!waiting|job \S+ (ready|completed))(submit error|Bad UID|script|illegal"
            r"|directive|cannot|usage|\w+ error|Invalid)"
        ),
        level=ROOT,
        what="PBS did not take the job",
        cause="the message says what it does not accept",
        fix="change what the message names",
        example="qsub: submit error (Bad UID for job execution MSG=root user not allowed)",
        rules=("RK123",),
    ),
    Signature(
        name="mpiexec-summary",
        pattern=(
            "BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES"
            r"|Primary job\s+terminated normally, but|mpirun (has exited due to"
            "|noticed that) process|detected that one or more processes exited with non-zero status"
        ),
        level=FALLOUT,
        what="mpiexec reports a failed rank",
        cause="a rank ended with an error",
        fix="look for its own error above",
        example="=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
    ),
)
