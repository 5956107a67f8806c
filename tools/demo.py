"""What ``make demo`` shows: progress, the same model on 1 and 2 processes, a kill and a resume, a speed-up table.

Everything is done by the commands that are printed; the runs stay in ./runs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch

RANKUP = str(Path(sys.executable).with_name("rankup"))
FOLDER = Path("runs/demo")
TRAIN = [
    "train",
    "mnist-cnn",
    "--data",
    "digits",
    "--epochs",
    "2",
    "--exact",
    "any-world",
    "--snapshot-every",
    "5 steps",
]


def heading(text: str) -> None:
    print(f"\n\033[1m── {text}\033[0m" if sys.stdout.isatty() else f"\n── {text}", flush=True)


def show(arguments: list[str]) -> list[str]:
    print("$ rankup " + " ".join(f"'{word}'" if " " in word else word for word in arguments), flush=True)
    return [RANKUP, *arguments]


def train(name: str, processes: int) -> str:
    """The hash of the weights that ``processes`` processes train."""
    model = FOLDER / f"{name}.pt"
    subprocess.run(show([*TRAIN, "--nproc-per-node", str(processes), "--save-model", str(model)]), check=True)
    return weights_hash(model)


def killed_and_resumed() -> str:
    """The same training, killed with SIGKILL after its first snapshot, and resumed from there."""
    model, root = FOLDER / "resumed.pt", FOLDER / "killed"
    command = [
        *TRAIN,
        "--nproc-per-node",
        "2",
        "--save-model",
        str(model),
        "--name",
        "killed",
        "--runs-root",
        str(root),
    ]
    process = subprocess.Popen(show(command), start_new_session=True)
    # ``latest`` is there once a snapshot is whole; ``step-5.tmp`` is one that is being written.
    while not list(root.glob("killed/*/snapshots/latest")) and process.poll() is None:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    print("killed with SIGKILL", flush=True)
    subprocess.run(show(["run", "--resume", "killed", "--runs-root", str(root)]), check=True)
    return weights_hash(model)


def weights_hash(path: Path) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(torch.load(path, weights_only=True).items()):
        digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def main() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    heading("1. the same training on 1 and on 2 processes")
    one, two = train("one", 1), train("two", 2)
    heading("2. the same again, killed in the middle and resumed")
    resumed = killed_and_resumed()
    heading("the SHA-256 of the weights")
    for name, found in (
        ("1 process", one),
        ("2 processes", two),
        ("2 processes, killed and resumed", resumed),
    ):
        print(f"  {found}  {name}")
    if len({one, two, resumed}) > 1:
        sys.exit("the weights differ: this is a defect, please report it")
    heading("3. what a second process brings")
    print(
        "Here with plain ddp, without --exact any-world: each process draws a dropout of its own, so the accuracy "
        "depends on their number.",
        flush=True,
    )
    study = [
        "scale",
        "mnist-cnn",
        "--data",
        "digits",
        "--epochs",
        "4",
        "--grid",
        "nproc=1,2",
        "--repeats",
        "3",
    ]
    # Its exit code is 1 if the machine is too busy for a ratio, and the table says so.
    subprocess.run(show(study), check=False)


if __name__ == "__main__":
    main()
