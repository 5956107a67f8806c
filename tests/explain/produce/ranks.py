"""Failures of one rank among several, on one host: torchrun and gloo."""

from __future__ import annotations

from explain.produce.case import Case, torchrun

DDP = """\
from torch.nn.parallel import DistributedDataParallel
"""

RANKS = (
    torchrun(
        "one-rank-raises",
        """
        def load(step):
            if rank == 2 and step == 3:
                raise ValueError(f"sample 17 of shard {rank} has 3 channels, expected 1")
            return torch.ones(1000)

        for step in range(5):
            batch = load(step)
            print(f"step {step} rank {rank}", flush=True)
            dist.all_reduce(batch)
        """,
        "python-exception",
        "ValueError: sample 17 of shard 2 has 3 channels, expected 1",
        2,
    ),
    torchrun(
        "one-rank-raises-late",
        """
        # Rank 0 has left its peers when they notice, and writes its traceback last.
        for step in range(5):
            if rank == 0 and step == 3:
                try:
                    open("data/train-0003.bin", "rb")
                except OSError:
                    dist.destroy_process_group()
                    time.sleep(1)
                    raise
            dist.all_reduce(torch.ones(1000))
        """,
        "file-not-found",
        "FileNotFoundError: [Errno 2] No such file or directory: 'data/train-0003.bin'",
        0,
        n=3,
    ),
    torchrun(
        "one-rank-killed",
        """
        import signal
        for step in range(5):
            if rank == 1 and step == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            dist.all_reduce(torch.ones(1000))
        """,
        "killed-by-sigkill",
        "Signal 9 (SIGKILL)",
        1,
        n=3,
    ),
    torchrun(
        "segfault",
        """
        import ctypes
        for step in range(5):
            if rank == 1 and step == 3:
                ctypes.string_at(0)
            dist.all_reduce(torch.ones(1000))
        """,
        "segmentation-fault",
        "Signal 11 (SIGSEGV)",
        1,
        n=2,
    ),
    torchrun(
        "segfault-with-faulthandler",
        """
        import ctypes, faulthandler
        faulthandler.enable()
        for step in range(5):
            if rank == 1 and step == 3:
                ctypes.string_at(0)
            dist.all_reduce(torch.ones(1000))
        """,
        "segmentation-fault",
        "Fatal Python error: Segmentation fault",
        1,
        n=2,
    ),
    torchrun(
        "memory-limit-torch",
        """
        dist.barrier()
        if rank == 1:
            import resource
            resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
            activations = torch.zeros(8 << 30, dtype=torch.uint8)
        dist.barrier()
        """,
        "cpu-out-of-memory",
        "DefaultCPUAllocator: can't allocate memory",
        1,
        n=2,
    ),
    torchrun(
        "memory-error-python",
        """
        dist.barrier()
        if rank == 1:
            import resource
            resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
            cache = bytearray(8 << 30)
        dist.barrier()
        """,
        "cpu-out-of-memory",
        "MemoryError",
        1,
        n=2,
    ),
    torchrun(
        "uneven-loader-timeout",
        """
        # Rank 1 has one batch less, and then does something else for a while.
        for step in range(3 if rank == 1 else 4):
            dist.all_reduce(torch.ones(1000))
        time.sleep(8 if rank == 1 else 0)
        print("rank", rank, "done", flush=True)
        """,
        "gloo-timeout",
        "Timed out waiting 4000ms for recv operation to complete",
        1,
        n=2,
        env="PATIENCE=4",
    ),
    torchrun(
        "uneven-loader-left",
        """
        # Rank 1 has one batch less, and ends without a word.
        for step in range(3 if rank == 1 else 4):
            dist.all_reduce(torch.ones(1000))
        """,
        "rank-left-early",
        "terminate called without an active exception",
        1,
        n=2,
    ),
    torchrun(
        "monitored-barrier",
        """
        dist.barrier()
        if rank == 1:
            time.sleep(10)
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=3))
        """,
        "monitored-barrier",
        "Rank 1 failed to pass monitoredBarrier in 3000 ms",
        1,
        n=3,
    ),
    torchrun(
        "unused-parameters",
        DDP
        + """
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
            def forward(self, x):
                return self.a(x)
        model = DistributedDataParallel(Net())
        for step in range(3):
            model(torch.ones(2, 4)).sum().backward()
        """.replace("\n        ", "\n"),
        "ddp-unused-parameters",
        "Expected to have finished reduction in the prior iteration",
        None,
        n=2,
    ),
    torchrun(
        "ddp-shape-mismatch",
        DDP
        + """
        model = torch.nn.Linear(4, 10 if rank == 0 else 11)
        model = DistributedDataParallel(model)
        """.replace("\n        ", "\n"),
        "ddp-models-differ",
        "appears not to match sizes of the same param in process 0",
        1,
        n=2,
    ),
    torchrun(
        "collective-mismatch",
        """
        # Rank 0 saves, which gathers, while rank 1 trains on.
        if rank == 0:
            dist.all_reduce(torch.ones(40))
        else:
            dist.all_reduce(torch.ones(4))
        dist.barrier()
        """,
        "collective-mismatch",
        "Is there a distributed collective mismatch in your code?",
        None,
        n=2,
    ),
    torchrun(
        "progress-bar-before-traceback",
        """
        for step in range(5):
            print(f"\\r{step * 20}%|{'#' * step}", end="", file=sys.stderr, flush=True)
            if rank == 1 and step == 3:
                raise ValueError("no labels in this batch")
            dist.all_reduce(torch.ones(10))
        """,
        "python-exception",
        "ValueError: no labels in this batch",
        1,
        n=2,
    ),
    torchrun(
        "nccl-not-built",
        "",
        "nccl-not-built",
        "NCCL",
        0,
        n=2,
    ),
    torchrun(
        "syntax-error",
        "",
        "python-syntax-error",
        "SyntaxError: '(' was never closed",
        0,
        n=2,
    ),
    torchrun(
        "module-not-found",
        """
        import torchvison
        """,
        "module-not-found",
        "ModuleNotFoundError: No module named 'torchvison'",
        None,
        n=2,
    ),
    torchrun(
        "torchrun-child-gets-sigterm",
        """
        import signal
        if rank == 1:
            time.sleep(1)
            os.kill(os.getppid(), signal.SIGTERM)
        time.sleep(20)
        """,
        "terminated-from-outside",
        "got signal: 15",
        None,
        n=2,
    ),
    torchrun(
        "gloo-wrong-interface",
        "",
        "unknown-interface",
        "Unable to find address for: eth9",
        0,
        n=2,
        env="GLOO_SOCKET_IFNAME=eth9",
    ),
    torchrun(
        "all-ranks-exit-3",
        """
        dist.barrier()
        print("the license server does not answer", flush=True)
        os._exit(3)
        """,
        "unknown",
        "exitcode",
        None,
        n=2,
    ),
    torchrun(
        "rank-exits-7",
        """
        dist.barrier()
        if rank == 1:
            print("rank 1: configuration is not complete", flush=True)
            os._exit(7)
        dist.barrier()
        """,
        "unknown",
        "exitcode  : 7 (pid",
        1,
        n=2,
    ),
)
# Their programs are not what ``torchrun`` makes of a text.
_OTHER = {
    "nccl-not-built": "import torch.distributed as dist\n\ndist.init_process_group('nccl')\n",
    "syntax-error": "import torch\n\nmodel = torch.nn.Linear(4, 4\nprint(model)\n",
}
RANKS = tuple(
    Case(c.name, c.command, c.signature, c.quote, c.rank, {"train.py": _OTHER[c.name]})
    if c.name in _OTHER
    else c
    for c in RANKS
)
