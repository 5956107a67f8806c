"""Failures of launchers, shells and several processes on one host."""

from __future__ import annotations

from explain.produce.case import GROUP, Case, program

HOST = (
    Case(
        "script-missing",
        "torchrun --standalone --nproc-per-node 2 trian.py > job.log 2>&1",
        "script-missing",
        "can't open file '/home/user/project/trian.py': [Errno 2] No such file or directory",
        0,
        {"train.py": "print('never')\n"},
    ),
    Case(
        "exec-format",
        r"printf '\177ELF\2\1\1\0\0\0\0\0\0\0\0\0\2\0\267\0' > trainer; head -c 200 /dev/zero >> trainer; chmod +x trainer;"
        " bash ./run.sh > job.log 2>&1",
        "exec-format",
        "cannot execute binary file: Exec format error",
        None,
        {"run.sh": "./trainer --epochs 3\n"},
    ),
    Case(
        "bare-killed",
        "bash ./run.sh > job.log 2>&1; true",
        "killed-by-sigkill",
        "Killed",
        None,
        {
            "run.sh": "python train.py\necho the end\n",
            "train.py": "import os\nprint('epoch 1', flush=True)\nos.kill(os.getpid(), 9)\n",
        },
    ),
    Case(
        "cgroup-out-of-memory",
        "bash ./run.sh > job.log 2>&1; true",
        "killed-by-sigkill",
        "Killed",
        None,
        {
            "run.sh": "G=/sys/fs/cgroup/memory/explain-$$; mkdir $G && echo 200M > $G/memory.limit_in_bytes\n"
            "(echo $BASHPID > $G/cgroup.procs; exec python train.py)\n",
            "train.py": "data = []\nfor i in range(1000):\n    data.append(bytearray(b'x' * (1 << 24)))\n    print('chunk', i, flush=True)\n",
        },
    ),
    Case(
        "port-in-use",
        "python -c 'import socket,time; s=socket.socket(socket.AF_INET6); s.bind((\"::\",29500)); s.listen(); time.sleep(40)' &"
        " sleep 1; torchrun --nnodes 1 --nproc-per-node 2 --master-addr 127.0.0.1 --master-port 29500 train.py > job.log 2>&1;"
        " kill %1",
        "port-in-use",
        "EADDRINUSE",
        None,
        {"train.py": GROUP},
    ),
    Case(
        "agent-missing",
        "torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:29400"
        " --rdzv-conf join_timeout=8,last_call_timeout=1 train.py > job.log 2>&1",
        "agents-missing",
        "RendezvousTimeoutError",
        None,
        {"train.py": GROUP},
    ),
    Case(
        "wrong-world-size",
        "for r in 0 1; do MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 RANK=$r WORLD_SIZE=4 PATIENCE=4 python train.py & done"
        " > job.log 2>&1; wait",
        "clients-missing",
        "2/4 clients joined",
        None,
        {"train.py": GROUP},
    ),
    Case(
        "master-unresolvable",
        "MASTER_ADDR=gpu-17-3 MASTER_PORT=29500 RANK=1 WORLD_SIZE=2 PATIENCE=5 python train.py > job.log 2>&1",
        "host-unresolvable",
        "gpu-17-3",
        None,
        {"train.py": GROUP},
    ),
    Case(
        "master-unreachable",
        "MASTER_ADDR=127.0.0.1 MASTER_PORT=29517 RANK=1 WORLD_SIZE=2 PATIENCE=5 python train.py > job.log 2>&1",
        "endpoint-unreachable",
        "127.0.0.1",
        None,
        {"train.py": GROUP},
    ),
    Case(
        "files-per-rank",
        "torchrun --standalone --nproc-per-node 3 --log-dir logs --redirects 3 train.py > torchrun.log 2>&1;"
        " for r in 0 1 2; do for s in out err; do cp logs/*/attempt_0/$r/std$s.log rank-$r.$s; done; done",
        "python-exception",
        "ZeroDivisionError: division by zero",
        1,
        {
            "train.py": program(
                "for step in range(4):\n    if rank == 1:\n        1 / 0\n    dist.all_reduce(torch.ones(9))\n"
            )
        },
        ("torchrun.log", "rank-0.out", "rank-0.err", "rank-1.out", "rank-1.err", "rank-2.out", "rank-2.err"),
    ),
    Case(
        "tee-prefixes",
        "torchrun --standalone --nproc-per-node 3 --log-dir logs --tee 3 train.py > job.log 2>&1",
        "python-exception",
        "KeyError: 'pixels'",
        2,
        {
            "train.py": program(
                "for step in range(4):\n    if rank == 2:\n        {}['pixels']\n    dist.all_reduce(torch.ones(9))\n"
            )
        },
    ),
    Case(
        "record-decorator",
        "torchrun --standalone --nproc-per-node 3 train.py > job.log 2>&1",
        "python-exception",
        "RuntimeError: no such split: valid",
        1,
        {
            "train.py": program(
                """
                from torch.distributed.elastic.multiprocessing.errors import record
                @record
                def main():
                    for step in range(4):
                        if rank == 1:
                            raise RuntimeError("no such split: valid")
                        dist.all_reduce(torch.ones(9))
                main()
                """
            )
        },
    ),
    Case(
        "conda-missing",
        "bash ./run.sh > job.log 2>&1",
        "conda-missing",
        "conda: command not found",
        None,
        {"run.sh": "conda activate torch\npython train.py\n", "train.py": "import lightning_bolts\n"},
    ),
    Case(
        "folder-missing",
        "bash ./run.sh > job.log 2>&1",
        "path-missing",
        "line 2: cd: /scratch/project: No such file or directory",
        None,
        {"run.sh": "echo job started\ncd /scratch/project || exit 1\npython train.py\n"},
    ),
    Case(
        "exit-with-a-message",
        "torchrun --standalone --nproc-per-node 2 train.py > job.log 2>&1",
        "unknown",
        "config.yaml: unknown optimizer 'adamm'",
        1,
        {
            "train.py": program(
                "if rank == 1:\n    sys.exit(\"config.yaml: unknown optimizer 'adamm'\")\ndist.barrier()\n"
            )
        },
    ),
    Case(
        "traceback-survived",
        "python train.py > job.log 2>&1",
        "",
        "",
        None,
        {
            "train.py": "import traceback\nfor step in range(200):\n    try:\n        1 / (step - 20)\n"
            "    except ZeroDivisionError:\n        traceback.print_exc()\n    print('step', step, flush=True)\n"
        },
    ),
    Case(
        "mpirun-tag-output",
        "mpirun --allow-run-as-root --oversubscribe --tag-output -n 3 python train.py > job.log 2>&1",
        "python-exception",
        "KeyError: 'lr'",
        2,
        {
            "train.py": "import os, time\nrank = int(os.environ['OMPI_COMM_WORLD_RANK'])\nprint('start', rank, flush=True)\n"
            "time.sleep(1)\nif rank == 2:\n    {}['lr']\ntime.sleep(20)\n"
        },
    ),
    Case(
        "two-nodes-two-logs",
        "for n in 0 1; do torchrun --nnodes 2 --nproc-per-node 2 --node-rank $n --master-addr 127.0.0.1 --master-port 29877"
        " train.py > node$n.log 2>&1 & done; wait",
        "python-exception",
        "RuntimeError: NaN in gradients of layer 7",
        3,
        {
            "train.py": program(
                "for step in range(4):\n    if rank == 3 and step == 2:\n"
                "        raise RuntimeError('NaN in gradients of layer 7')\n    dist.all_reduce(torch.ones(9))\n"
            )
        },
        ("node0.log", "node1.log"),
    ),
    Case(
        "module-command-missing",
        "bash ./run.sh > job.log 2>&1",
        "module-command",
        "module: command not found",
        None,
        {"run.sh": "module load cuda/12.4\nset -e\ntorch-run train.py\n"},
    ),
    Case(
        "no-failure",
        "torchrun --standalone --nproc-per-node 2 train.py > job.log 2>&1",
        "",
        "",
        None,
        {"train.py": program("dist.all_reduce(torch.ones(3))\nprint('accuracy 0.97, 0 errors')\n")},
    ),
)
