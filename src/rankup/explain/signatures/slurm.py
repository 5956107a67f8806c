"""SLURM in a job's log."""

from __future__ import annotations

from rankup.explain.signatures.signature import FALLOUT, NOISE, ROOT, WEAK, Signature

SLURM = (
    Signature(
        name="time-limit",
        pattern=r"CANCELLED AT .*DUE TO TIME LIMIT|DUE TO TIME LIMIT|Job \S+ has exceeded its time\b",
        level=ROOT,
        what="the job reached its time limit",
        cause="it required more time than --time, or it hung",
        fix=(
            "save snapshots and requeue (`rankup submit --max-requeues 5`), or ask for more time; "
            "if the last steps came long before the end, it hung"
        ),
        example=(
            "slurmstepd: error: *** JOB 4711 ON node01 CANCELLED AT 2026-11-22T14:40:00 DUE TO TIME LIMIT ***"
        ),
        rules=("RK130",),
        exits=(-15, -9, 143, 137),
    ),
    Signature(
        name="preempted",
        pattern="CANCELLED AT .*DUE TO PREEMPTION|DUE TO PREEMPTION",
        level=ROOT,
        what="the job was preempted",
        cause="a job of higher priority took its nodes",
        fix="save snapshots and requeue (`rankup submit --max-requeues 5`)",
        example=(
            "slurmstepd: error: *** JOB 4711 ON node01 CANCELLED AT 2026-11-22T14:40:00 DUE TO PREEMPTION ***"
        ),
        exits=(-15, -9, 143, 137),
    ),
    Signature(
        name="node-failure",
        pattern="DUE TO NODE FAILURE|Node failure on|NODE_FAIL|DUE TO JOB REQUEUE",
        level=ROOT,
        what="a node of the job failed",
        cause="the node crashed, or SLURM lost contact with it: the program is not to blame",
        fix=("submit again, from the last snapshot; exclude the node if it fails again (--exclude NODE)"),
        example=(
            "slurmstepd: error: *** JOB 4711 ON node01 CANCELLED AT 2026-11-22T14:40:00 DUE TO "
            "NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"
        ),
        exits=(-15, -9, 143, 137),
    ),
    Signature(
        name="oom-kill",
        pattern=(
            r"oom[-_]kill|[Oo]ut[- ][Oo]f[- ][Mm]emory handler|task \d+: Out Of Memory"
            "|Exceeded (step|job) memory limit|OUT_OF_MEMORY"
        ),
        level=ROOT,
        what="the job used more host memory than it may",
        cause=(
            "the kernel killed a process because the job's limit of memory (--mem) was reached; "
            "this is not the GPU's memory"
        ),
        fix="ask for more (--mem), use fewer loader workers, and do not load all data on each rank",
        example=(
            "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the step tasks "
            "have been OOM Killed."
        ),
        rules=("RK308",),
        exits=(-9, 137),
    ),
    Signature(
        name="cancelled",
        pattern=r"(JOB|STEP) \S+ ON \S+ CANCELLED AT \S+( BY \S+)? \*\*\*",
        level=WEAK,
        what="the job was cancelled",
        cause=("somebody called scancel, or the script did; or SLURM ended the step after a task had failed"),
        fix=(
            "`sacct -j JOB --format=JobID,State,ExitCode` names the user who cancelled it; an "
            "earlier error in the log goes before this"
        ),
        example="slurmstepd: error: *** JOB 4711 ON node01 CANCELLED AT 2026-11-22T14:40:00 ***",
        likely=True,
        exits=(-15, 143),
    ),
    Signature(
        name="srun-task-failed",
        pattern=(
            r"srun: error: \S+: tasks? [\d,-]+: (Exited with exit code|Terminated|Aborted|Killed"
            "|Segmentation fault)"
        ),
        level=FALLOUT,
        what="srun reports a failed task",
        cause="a task ended with an error",
        fix="look for the task's own error above",
        example="srun: error: node02: task 3: Exited with exit code 1",
    ),
    Signature(
        name="srun-terminating",
        pattern=(
            "srun: (Terminating (StepId|Job|job step)|Job step aborted|forcing job termination"
            "|First task exited)"
        ),
        level=FALLOUT,
        what="srun ended the step",
        cause="a task had failed, or the job was cancelled",
        fix="look for the first failed task",
        example="srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
    ),
    Signature(
        name="program-missing",
        pattern=r"execve\(\): .*: No such file or directory|couldn't chdir to",
        level=ROOT,
        what="a node does not find the program or its folder",
        cause=(
            "it is not in PATH on that node, or on a disk that only the login node has; the "
            "environment was not activated in the job"
        ),
        fix=("activate the environment in the job's script, or give full paths on a shared file system"),
        example="slurmstepd: error: execve(): torch-run: No such file or directory",
        exits=(2,),
    ),
    Signature(
        name="noise-cpu-bind",
        pattern="srun: warning: |sbatch: warning: |slurmstepd: info: ",
        level=NOISE,
        what="SLURM warns",
        cause="a warning",
        fix="none is required",
        example="srun: warning: can't run 1 processes on 2 nodes, setting nnodes to 1",
    ),
)
