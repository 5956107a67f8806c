"""Failures of jobs on a real SLURM of two nodes (``tests/cluster/lab.py``)."""

from __future__ import annotations

from explain.produce.case import GROUP, Case, program

_RENDEZVOUS = """\
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) MASTER_PORT=29500
"""
# What srun's tasks begin with.
_SRUN = """\
import os
os.environ["RANK"], os.environ["WORLD_SIZE"] = os.environ["SLURM_PROCID"], os.environ["SLURM_NTASKS"]
"""
_AGENTS = (
    "srun --ntasks-per-node 1 --label torchrun --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d "
    '--rdzv-id "$SLURM_JOB_ID" --rdzv-endpoint "$MASTER_ADDR:29500" train.py\n'
)


def _batch(name: str, script: str, signature: str, quote: str, rank: int | None = None, *,
           options: tuple[str, ...] = ("-N2",), train: str = "") -> Case:  # fmt: skip
    text = "#!/bin/bash\n#SBATCH --time 5\n" + script
    return Case(name, text, signature, quote, rank, {"train.py": train}, where="batch", options=options)


CLUSTER = (
    _batch(
        "srun-label-one-rank-raises",
        _RENDEZVOUS + "srun --label --ntasks-per-node 2 python train.py\n",
        "python-exception",
        "AssertionError: loss is nan at step 3",
        3,
        options=("-N2", "--ntasks-per-node=2"),
        train=program(
            """
            for step in range(6):
                assert not (rank == 3 and step == 3), "loss is nan at step 3"
                dist.all_reduce(torch.ones(100))
            """,
            _SRUN + GROUP,
        ),
    ),
    _batch(
        "srun-agents-one-rank-raises",
        _RENDEZVOUS + _AGENTS,
        "file-not-found",
        "FileNotFoundError: [Errno 2] No such file or directory: '/local/shard-2.tar'",
        2,
        train=program(
            """
            for step in range(6):
                if rank == 2 and step == 3:
                    open(f"/local/shard-{rank}.tar")
                dist.all_reduce(torch.ones(100))
            """
        ),
    ),
    _batch(
        "head-only-agent",
        _RENDEZVOUS + "torchrun --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-id 7 "
        '--rdzv-endpoint "$MASTER_ADDR:29500" --rdzv-conf join_timeout=8,last_call_timeout=1 train.py\n',
        "agents-missing",
        "RendezvousTimeoutError",
        train=GROUP,
    ),
    _batch(
        "torchrun-per-gpu",
        _RENDEZVOUS
        + "srun --ntasks-per-node 2 torchrun --nnodes 1 --nproc-per-node 2 --master-port 29500 train.py\n",
        "port-in-use",
        "EADDRINUSE",
        options=("-N1", "--ntasks-per-node=2"),
        train=program("dist.barrier()\ntime.sleep(8)\n"),
    ),
    _batch(
        "rank-killed-under-srun",
        _RENDEZVOUS + "srun --label --ntasks-per-node 2 python train.py\n",
        "killed-by-sigkill",
        "task 1: Killed",
        1,
        options=("-N2", "--ntasks-per-node=2"),
        train=program(
            """
            import signal
            for step in range(6):
                if rank == 1 and step == 3:
                    os.kill(os.getpid(), signal.SIGKILL)
                dist.all_reduce(torch.ones(100))
            """,
            _SRUN + GROUP,
        ),
    ),
    _batch(
        "time-limit",
        "srun python train.py\n",
        "time-limit",
        "DUE TO TIME LIMIT",
        options=("-N1", "--time=1"),
        train="import time\nfor epoch in range(1000):\n    print('epoch', epoch, flush=True)\n    time.sleep(10)\n",
    ),
    _batch(
        "cancelled",
        "srun python train.py &\nsleep 4\nscancel $SLURM_JOB_ID\nwait\n",
        "cancelled",
        "CANCELLED AT",
        options=("-N1",),
        train="import time\nprint('epoch 1', flush=True)\ntime.sleep(30)\n",
    ),
    _batch(
        "invalid-partition",
        "unset SLURM_JOB_ID SLURM_JOBID\nsrun --partition gpu_long -n1 hostname\n",
        "invalid-partition",
        "srun: error: invalid partition specified: gpu_long",
        options=("-N1",),
    ),
    _batch(
        "more-tasks-than-allocated",
        "srun -N4 python train.py\n",
        "more-than-allocated",
        "srun: error: Only allocated 2 nodes asked for 4",
    ),
    _batch(
        "program-missing-on-node",
        "srun --label torch-run train.py\n",
        "program-missing",
        "execve(): torch-run: No such file or directory",
    ),
    _batch(
        "conda-missing-in-job",
        "source ~/miniconda3/etc/profile.d/conda.sh\nconda activate torch\nsrun python3 -c 'import torchmetrics'\n",
        "conda-missing",
        "conda.sh: No such file or directory",
        options=("-N1",),
    ),
    _batch(
        "wrong-interface-in-job",
        _RENDEZVOUS + "export GLOO_SOCKET_IFNAME=ib0\nsrun --label --ntasks-per-node 1 python train.py\n",
        "unknown-interface",
        "Unable to find address for: ib0",
        0,
        train=_SRUN + GROUP,
    ),
    _batch(
        "localhost-as-master",
        "export MASTER_ADDR=localhost MASTER_PORT=29500 PATIENCE=6\nsrun --label --ntasks-per-node 1 python train.py\n",
        "endpoint-unreachable",
        "localhost",
        1,
        train=_SRUN + GROUP,
    ),
    _batch(
        "node-failure",
        _RENDEZVOUS + "srun --no-kill=off --label --ntasks-per-node 1 python train.py\n",
        "node-failure",
        "srun: error: Node failure on node02",
        options=("-N2", "--no-requeue"),
        train=program(
            "for step in range(600):\n    dist.all_reduce(torch.ones(9))\n    time.sleep(0.1)\n",
            _SRUN + GROUP,
        ),
    ),
    Case(
        "oom-kill-by-slurm",
        "#!/bin/bash\n" + _RENDEZVOUS + "srun --label python train.py\n",
        "oom-kill",
        "oom-kill event(s) in StepId",
        1,
        {
            "train.py": program(
                """
                data = []
                dist.barrier()
                while rank == 1:
                    data.append(bytearray(b"x" * (1 << 24)))
                dist.barrier()
                """,
                _SRUN + GROUP,
            )
        },
        where="limits",
        options=("-N1", "-n2", "--mem=1500M"),
    ),
    Case(
        "sbatch-invalid-partition",
        "sbatch -p gpu_long job.sh > job.log 2>&1",
        "invalid-partition",
        "sbatch: error: invalid partition specified: gpu_long",
        files={"job.sh": "#!/bin/bash\nhostname\n"},
        where="head",
    ),
    Case(
        "sbatch-invalid-gres",
        "sbatch --gres=gpu:h100:1 job.sh > job.log 2>&1; sbatch --gres=gpu:16 job.sh >> job.log 2>&1",
        "not-available",
        "Requested node configuration is not available",
        files={"job.sh": "#!/bin/bash\nhostname\n"},
        where="head",
    ),
    Case(
        "sbatch-invalid-gres-type",
        "sbatch --gres=vgpu:1 job.sh > job.log 2>&1",
        "invalid-gres",
        "Invalid generic resource (gres) specification",
        files={"job.sh": "#!/bin/bash\nhostname\n"},
        where="head",
    ),
    Case(
        "sbatch-dos-line-ends",
        "sbatch job.sh > job.log 2>&1",
        "dos-line-ends",
        "Batch script contains DOS line breaks",
        files={"job.sh": "#!/bin/bash\r\nhostname\r\n"},
        where="head",
    ),
    Case(
        "sbatch-unknown-option",
        "sbatch job.sh > job.log 2>&1",
        "wrong-directive",
        "sbatch: unrecognized option '--gpu-per-node=4'",
        files={"job.sh": "#!/bin/bash\n#SBATCH --gpu-per-node=4\nhostname\n"},
        where="head",
    ),
    Case(
        "sbatch-bad-time",
        "sbatch --time=1day job.sh > job.log 2>&1",
        "wrong-directive",
        "Invalid --time specification",
        files={"job.sh": "#!/bin/bash\nhostname\n"},
        where="head",
    ),
)
