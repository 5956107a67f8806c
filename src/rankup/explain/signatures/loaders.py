"""torch about loader workers, spawned processes and the memory of the host."""

from __future__ import annotations

from rankup.explain.signatures.signature import ROOT, Signature

LOADERS = (
    Signature(
        name="shared-memory",
        pattern=(
            "out of shared memory|unable to allocate shared memory|unable to open shared memory|Bus error"
        ),
        level=ROOT,
        what="the shared memory of this node is full",
        cause=(
            "loader workers hand over batches in /dev/shm, which is too small (in containers often 64 MB)"
        ),
        fix=(
            "give the container more (--ipc=host, --shm-size), use fewer workers, or "
            "set_sharing_strategy('file_system')"
        ),
        example=(
            "RuntimeError: DataLoader worker (pid 12) is killed by signal: Bus error. It is "
            "possible that dataloader's workers are out of shared memory."
        ),
        exits=(-7, 135),
    ),
    Signature(
        name="loader-worker-killed",
        pattern=r"DataLoader worker \(pid\(?s?\)? [\d, ]+\) (is killed by signal|exited unexpectedly)",
        level=ROOT,
        what="a worker process of a DataLoader died",
        cause=(
            "the system or a crash ended it; if it was SIGKILL, often because memory ran out, but "
            "the log does not say so"
        ),
        fix=("look at the memory of the node; use fewer workers, or num_workers=0 to see its own error"),
        example="RuntimeError: DataLoader worker (pid 12) is killed by signal: Killed.",
        rules=("RK308",),
        likely=True,
    ),
    Signature(
        name="loader-timeout",
        pattern=r"DataLoader timed out after \d+ seconds",
        level=ROOT,
        what="a DataLoader waited too long for a batch",
        cause=(
            "reading or decoding hangs: a slow file system, a lock after fork, or too few CPUs for "
            "the workers"
        ),
        fix="num_workers=0 shows whether a sample hangs; ask for as many CPUs as workers",
        example="RuntimeError: DataLoader timed out after 30 seconds",
        rules=("RK308",),
    ),
    Signature(
        name="cannot-pickle",
        pattern=("Can't (get local|pickle)|cannot pickle|PicklingError|AttributeError: Can't get attribute"),
        level=ROOT,
        what="an object cannot be sent to another process",
        cause=(
            "loader workers or spawned ranks get copies by pickle, and lambdas, local classes, "
            "locks and open files have none"
        ),
        fix="define functions and classes at the top of a module; open files in the worker",
        example="AttributeError: Can't pickle local object 'Images.__init__.<locals>.<lambda>'",
    ),
    Signature(
        name="no-main-guard",
        pattern="An attempt has been made to start a new process before the",
        level=ROOT,
        what="the script starts processes while it is imported",
        cause="with spawn each new process imports the script, and starts processes again",
        fix='put the part that runs under `if __name__ == "__main__":`',
        example=(
            "An attempt has been made to start a new process before the current process has "
            "finished its bootstrapping phase."
        ),
    ),
    Signature(
        name="cpu-out-of-memory",
        pattern=(
            r"DefaultCPUAllocator: (can't|not enough)|^MemoryError\b|std::bad_alloc"
            "|Cannot allocate memory|_ArrayMemoryError"
        ),
        level=ROOT,
        what="the memory of the host is full, or its limit is reached",
        cause="the process asked for more memory than it may have",
        fix=(
            "ask for more (--mem), use fewer loader workers or smaller batches; look at the size "
            "in the message"
        ),
        example=(
            "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: "
            "can't allocate memory: you tried to allocate 8589934592 bytes."
        ),
    ),
)
