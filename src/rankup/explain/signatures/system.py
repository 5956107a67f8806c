"""The shell and the operating system."""

from __future__ import annotations

from rankup.explain.signatures.signature import FALLOUT, ROOT, WEAK, Signature

SYSTEM = (
    Signature(
        name="conda-missing",
        pattern=(
            "conda: (command )?not found|CondaError: Run 'conda init'"
            "|CommandNotFoundError: Your shell has not been properly configured"
            "|EnvironmentNameNotFound|EnvironmentLocationNotFound"
            r"|profile\.d/conda\.sh: No such file"
        ),
        level=WEAK,
        what="conda is not set up in the job",
        cause=(
            "a job's shell does not read what `conda init` wrote, so the environment was not "
            "activated and another Python ran"
        ),
        fix="`source CONDA/etc/profile.d/conda.sh` before `conda activate` in the job's script",
        example="./run.sh: line 1: conda: command not found",
        rules=("RK151",),
        setup=True,
    ),
    Signature(
        name="module-command",
        pattern=(
            r"module: (command )?not found|Lmod has detected the following error|ModuleCmd_Load\.c"
            r"|Unable to locate a modulefile|The following module\(s\) are unknown"
        ),
        level=WEAK,
        what="a module of the cluster could not be loaded",
        cause=(
            "the name or version does not exist here, or the job's shell does not know the command `module`"
        ),
        fix="`module avail` on the login node; begin the script with `#!/bin/bash -l`",
        example="./run.sh: line 1: module: command not found",
        setup=True,
    ),
    Signature(
        name="exec-format",
        pattern="Exec format error",
        level=ROOT,
        what="a program is built for another kind of processor",
        cause=(
            "it was installed on x86 and runs on ARM (aarch64), or the other way round; or a "
            "script has no first line `#!…`"
        ),
        fix="install it on a node of the partition where it runs (`rankup env create`)",
        example="./run.sh: line 1: ./trainer: cannot execute binary file: Exec format error",
        rules=("RK126",),
        exits=(126,),
    ),
    Signature(
        name="path-missing",
        pattern=(
            r"line \d+: (?:cd: )?\S+: (?:No such file or directory|Is a directory|Not a directory)$"
            r"|^(?:cp|mv|cat|tar|ls|rm|rsync|unzip|bash|sh|source): .*No such file or directory"
        ),
        level=WEAK,
        what="a path in the job's script does not exist on this node",
        cause="the job runs in another folder than you think, or the disk is not on this node",
        fix="give full paths on a file system that all nodes see, and stop at errors (`set -e`)",
        example="job.sh: line 3: cd: /scratch/project: No such file or directory",
        rules=("RK146",),
        setup=True,
    ),
    Signature(
        name="command-not-found",
        pattern=r"(?:line \d+: |bash: |sh: \d+: )\S+: (?:command )?not found$",
        level=WEAK,
        what="a command does not exist on this node",
        cause="it is mistyped, or its module or environment is not loaded in the job",
        fix="load it in the job's script, or give its full path",
        example="./run.sh: line 3: torch-run: command not found",
        exits=(127,),
        setup=True,
        better=("conda-missing", "module-command", "path-missing"),
    ),
    Signature(
        name="segmentation-fault",
        pattern=(
            "Fatal Python error: (Segmentation fault|Bus error|Illegal instruction)"
            r"|Segmentation fault(?! occurred)|Signal 11 \(SIGSEGV\)|Caught signal 11"
        ),
        level=ROOT,
        what="a process crashed (segmentation fault)",
        cause=(
            "a defect in compiled code: an extension that was built for another torch, CUDA or "
            "MPI, or a broken library"
        ),
        fix=("`python -X faulthandler` shows the line; reinstall packages with compiled code for this torch"),
        example="Fatal Python error: Segmentation fault",
        exits=(-11, 139),
    ),
    Signature(
        name="illegal-instruction",
        pattern=r"Illegal instruction|Signal 4 \(SIGILL\)",
        level=ROOT,
        what="a process used an instruction that this processor lacks",
        cause="the program was built for a newer processor",
        fix="build it on the node where it runs",
        example="./run.sh: line 2:  4711 Illegal instruction     (core dumped) python train.py",
        rules=("RK126",),
        exits=(-4, 132),
    ),
    Signature(
        name="killed-by-sigkill",
        pattern=(
            r"(?:^|\s)Killed\b(?! by| Worker)|Signal 9 \(SIGKILL\)|terminated with signal SIGKILL"
            "|exited on signal 9"
        ),
        level=ROOT,
        what="a process was killed (SIGKILL)",
        cause=(
            "somebody or something outside killed it; the log does not say who. The kernel does so "
            "when memory runs out, and so do schedulers and users"
        ),
        fix=(
            "look at the memory (`sacct -j JOB --format=State,MaxRSS`, `dmesg`) and at the "
            "scheduler's own words before you change the script"
        ),
        example="./run.sh: line 1:    12 Killed                  python train.py",
        likely=True,
        exits=(-9, 137),
        better=(
            "oom-kill",
            "pbs-memory",
            "pbs-cpu-limit",
            "pbs-time-limit",
            "pbs-node-failure",
            "time-limit",
            "preempted",
            "node-failure",
        ),
    ),
    Signature(
        name="aborted",
        pattern=(
            r"Signal 6 \(SIGABRT\)|Fatal Python error: Aborted|free\(\): invalid"
            r"|double free or corruption|malloc\(\): |corrupted size vs"
        ),
        level=ROOT,
        what="a process aborted itself",
        cause="compiled code found an error: broken memory, or a library of another version",
        fix="the lines before it say what; `python -X faulthandler` shows the line",
        example="free(): invalid pointer",
        likely=True,
        exits=(-6, 134),
    ),
    Signature(
        name="terminated",
        pattern=r"(?:^|\s)Terminated\b(?! by)|Signal 15 \(SIGTERM\)",
        level=FALLOUT,
        what="a process was told to end (SIGTERM)",
        cause="the launcher or the scheduler ended it, mostly because another rank had failed",
        fix="look for the first failure",
        example="slurmstepd: error: node01: Terminated",
        exits=(-15, 143),
    ),
    Signature(
        name="library-missing",
        pattern=(
            r"cannot open shared object file|version `(GLIBC|GLIBCXX|CXXABI)_[\d.]+' not found"
            r"|undefined symbol:|\.so\S*: (file too short|invalid ELF header|wrong ELF class)"
        ),
        level=ROOT,
        what="a shared library is missing, broken or too old",
        cause=(
            "a module of the cluster is not loaded in the job, the package was built on another system, or "
            "LD_LIBRARY_PATH names another library of this name first"
        ),
        fix=(
            "load the modules in the job's script that were loaded when the package was installed; "
            "build the environment on a node of the cluster; look at LD_LIBRARY_PATH"
        ),
        example="OSError: libcudart.so.12: cannot open shared object file: No such file or directory",
        better=("module-command", "conda-missing"),
    ),
    Signature(
        name="disk-full",
        pattern="No space left on device|Errno 28|Disk quota exceeded|Errno 122",
        level=ROOT,
        what="the disk or your quota is full",
        cause="nothing more can be written there",
        fix=("`df -h`, `df -i` and the site's quota command; delete old snapshots, or write elsewhere"),
        example="OSError: [Errno 28] No space left on device",
    ),
    Signature(
        name="permission-denied",
        pattern="PermissionError|Errno 13|Permission denied|Read-only file system",
        level=ROOT,
        what="a file or folder may not be used",
        cause=(
            "it belongs to somebody else, is not executable, or the file system is read-only on the nodes"
        ),
        fix="`ls -ld` of the path; write to your project or scratch folder",
        example="PermissionError: [Errno 13] Permission denied: '/results/out.txt'",
        exits=(126,),
    ),
    Signature(
        name="too-many-open-files",
        pattern="Too many open files|Errno 24|received 0 items of ancdata",
        level=ROOT,
        what="too many files are open",
        cause=(
            "the limit of this process is reached; loader workers keep a file open for each tensor "
            "that they send"
        ),
        fix=(
            "`ulimit -n 65536` in the job's script, or "
            "torch.multiprocessing.set_sharing_strategy('file_system')"
        ),
        example="OSError: [Errno 24] Too many open files: 'train.py'",
    ),
)
