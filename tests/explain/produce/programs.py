"""Failures of Python programs on one host: files, memory, loader workers, models."""

from __future__ import annotations

from explain.produce.case import Case, program


def _python(name: str, text: str, signature: str, quote: str, *, before: str = "", rank: int | None = None,
            args: str = "") -> Case:  # fmt: skip
    command = f"{before}\npython train.py {args} > job.log 2>&1"
    return Case(name, command.strip(), signature, quote, rank, {"train.py": program(text, "")})


LOADER = """
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return read(index)

"""
_LOOP = """
if __name__ == "__main__":
    for batch in DataLoader(Images(), batch_size=2, num_workers=2):
        print(batch.shape, flush=True)
"""

PROGRAMS = (
    _python(
        "missing-data",
        """
        from pathlib import Path
        import torch
        def load(split):
            return torch.load(Path("/data/cifar100") / f"{split}.pt")
        train = load("train")
        """,
        "file-not-found",
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/cifar100/train.pt'",
    ),
    _python(
        "corrupt-snapshot",
        """
        import torch
        torch.save({"model": torch.zeros(1000)}, "snapshot.pt")
        data = open("snapshot.pt", "rb").read()
        open("snapshot.pt", "wb").write(data[: len(data) // 2])
        state = torch.load("snapshot.pt")
        """,
        "corrupt-file",
        "PytorchStreamReader failed",
    ),
    _python(
        "empty-snapshot",
        """
        import torch
        open("snapshot.pt", "wb").close()
        state = torch.load("snapshot.pt")
        """,
        "corrupt-file",
        "EOFError",
    ),
    _python(
        "weights-only",
        """
        import torch
        class Settings:
            pass
        torch.save({"settings": Settings(), "model": torch.zeros(3)}, "snapshot.pt")
        state = torch.load("snapshot.pt")
        """,
        "weights-only",
        "_pickle.UnpicklingError: Weights only load failed",
    ),
    _python(
        "state-dict-mismatch",
        """
        import torch
        state = torch.nn.Sequential(torch.nn.Linear(4, 4)).state_dict()
        state = {f"module.{name}": value for name, value in state.items()}
        torch.nn.Sequential(torch.nn.Linear(4, 4)).load_state_dict(state)
        """,
        "state-dict-mismatch",
        "Error(s) in loading state_dict for Sequential",
    ),
    _python(
        "disk-full",
        """
        import torch
        state = {"model": torch.zeros(1 << 20)}
        torch.save(state, "/scratch/snapshot.pt")
        """,
        "save-failed",
        "RuntimeError: basic_ios::clear: iostream error",
        before="mkdir -p /scratch; mount -t tmpfs -o size=1m none /scratch",
    ),
    _python(
        "disk-full-python",
        """
        with open("/scratch/log.txt", "w") as file:
            for step in range(1 << 20):
                print("step", step, file=file)
        """,
        "disk-full",
        "OSError: [Errno 28] No space left on device",
        before="mkdir -p /scratch; mount -t tmpfs -o size=1m none /scratch",
    ),
    Case(
        "permission-denied",
        "chmod 755 .; mkdir -m 700 /results; setpriv --reuid 65534 --clear-groups python train.py > job.log 2>&1",
        "permission-denied",
        "PermissionError: [Errno 13] Permission denied: '/results/out.txt'",
        None,
        {"train.py": "with open('/results/out.txt', 'w') as file:\n    file.write('accuracy 0.9')\n"},
    ),
    _python(
        "loader-worker-killed",
        LOADER
        + """
import os, signal
def read(index):
    if index == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return __import__("torch").zeros(3, 8, 8)
"""
        + _LOOP,
        "loader-worker-killed",
        "is killed by signal: Killed",
    ),
    _python(
        "loader-worker-raises",
        LOADER
        + """
import torch
def read(index):
    labels = {0: 1, 1: 2, 2: 3}
    return torch.tensor(labels[index])
"""
        + _LOOP,
        "data-format",
        "KeyError: 3",
    ),
    _python(
        "loader-out-of-shared-memory",
        LOADER
        + """
import torch
def read(index):
    return torch.zeros(3, 512, 512)
"""
        + _LOOP,
        "shared-memory",
        "unable to allocate shared memory(shm)",
        before="mount -t tmpfs -o size=1m none /dev/shm",
    ),
    _python(
        "loader-unpicklable",
        LOADER.replace("def __len__", "def __init__(self):\n        self.f = lambda x: x\n    def __len__")
        + """
import torch
def read(index):
    return torch.zeros(3)
"""
        + _LOOP.replace("num_workers=2", "num_workers=2, multiprocessing_context='spawn'"),
        "cannot-pickle",
        "Can't",
    ),
    _python(
        "spawn-without-main-guard",
        LOADER
        + """
import torch
def read(index):
    return torch.zeros(3)
for batch in DataLoader(Images(), num_workers=1, multiprocessing_context="spawn"):
    print(batch.shape)
""",
        "no-main-guard",
        "An attempt has been made to start a new process before the",
    ),
    _python(
        "too-many-open-files",
        """
        files = [open(__file__) for _ in range(100)]
        """,
        "too-many-open-files",
        "OSError: [Errno 24] Too many open files",
        before="ulimit -n 40",
    ),
    _python(
        "mp-spawn-rank-raises",
        """
        import os, time
        import torch, torch.distributed as dist, torch.multiprocessing as mp
        def train(rank, world):
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29533")
            dist.init_process_group("gloo", rank=rank, world_size=world)
            for step in range(4):
                if rank == 1 and step == 2:
                    raise RuntimeError("learning rate is negative")
                dist.all_reduce(torch.ones(100))
        if __name__ == "__main__":
            mp.spawn(train, args=(3,), nprocs=3)
        """,
        "python-exception",
        "RuntimeError: learning rate is negative",
        rank=1,
    ),
    _python(
        "mp-spawn-killed",
        """
        import os, signal, time
        import torch.multiprocessing as mp
        def train(rank, world):
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(20)
        if __name__ == "__main__":
            mp.spawn(train, args=(3,), nprocs=3)
        """,
        "killed-by-sigkill",
        "process 1 terminated with signal SIGKILL",
        rank=1,
    ),
    _python(
        "rank-variable-missing",
        """
        import torch.distributed as dist
        dist.init_process_group("gloo")
        """,
        "not-launched",
        "environment variable RANK expected, but not set",
    ),
    _python(
        "slurm-variable-missing",
        """
        import os
        rank = int(os.environ["SLURM_PROCID"])
        """,
        "variable-missing",
        "KeyError: 'SLURM_PROCID'",
    ),
    _python(
        "unknown-argument",
        """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--lr", type=float)
        args = parser.parse_args()
        """,
        "wrong-arguments",
        "train.py: error: unrecognized arguments: --learning-rate=0.1",
        args="--learning-rate=0.1",
    ),
    _python(
        "no-cuda-here",
        """
        import torch
        model = torch.nn.Linear(4, 4).to("cuda:3")
        """,
        "no-cuda",
        "AssertionError: Torch not compiled with CUDA enabled",
    ),
    _python(
        "snapshot-of-a-gpu",
        """
        import torch
        torch.serialization.register_package(1, lambda s: "cuda:2", lambda s, place: None)
        torch.save(torch.zeros(3), "snapshot.pt")
        state = torch.load("snapshot.pt")
        """,
        "cuda-snapshot",
        "Attempting to deserialize object on",
    ),
    _python(
        "mixed-devices",
        """
        import torch
        model = torch.nn.Linear(4, 4).to("meta")
        loss = torch.nn.functional.mse_loss(model.weight, torch.zeros(4, 4))
        """,
        "mixed-devices",
        "RuntimeError: Tensor on device cpu is not on the expected device meta!",
    ),
    _python(
        "shape-mismatch",
        """
        import torch
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
        model(torch.zeros(8, 3, 28, 28))
        """,
        "shapes-differ",
        "mat1 and mat2 shapes cannot be multiplied (8x2352 and 784x10)",
    ),
    _python(
        "label-out-of-range",
        """
        import torch
        loss = torch.nn.functional.cross_entropy(torch.zeros(2, 10), torch.tensor([3, 10]))
        """,
        "label-out-of-range",
        "IndexError: Target 10 is out of bounds",
    ),
    _python(
        "backward-twice",
        """
        import torch
        w = torch.ones(3, requires_grad=True)
        loss = (w * w).sum()
        loss.backward()
        loss.backward()
        """,
        "backward-twice",
        "Trying to backward through the graph a second time",
    ),
    _python(
        "group-not-initialized",
        """
        import torch, torch.distributed as dist
        dist.all_reduce(torch.ones(3))
        """,
        "group-not-initialized",
        "Default process group has not been initialized",
    ),
    _python(
        "chained-exceptions",
        """
        import json
        class ConfigError(Exception):
            pass
        def read(text):
            try:
                return json.loads(text)
            except ValueError as error:
                raise ConfigError("config.json is not valid JSON") from error
        read("{lr: 0.1}")
        """,
        "python-exception",
        "ConfigError: config.json is not valid JSON",
    ),
    _python(
        "exception-group",
        """
        def download(part):
            raise ConnectionError(f"part {part} of the data set cannot be fetched")
        errors = []
        for part in range(2):
            try:
                download(part)
            except ConnectionError as error:
                errors.append(error)
        raise ExceptionGroup("2 downloads failed", errors)
        """,
        "python-exception",
        "ExceptionGroup: 2 downloads failed (2 sub-exceptions)",
    ),
    _python(
        "library-missing",
        """
        import ctypes
        ctypes.CDLL("libcudart.so.12")
        """,
        "library-missing",
        "OSError: libcudart.so.12: cannot open shared object file: No such file or directory",
    ),
)
