"""The device of this process: by its local rank, never its global one."""

from __future__ import annotations

import os

import torch

from rankup.errors import RankupError
from rankup.world import World


def choose_device(world: World, wanted: str) -> torch.device:
    """``auto``: a GPU if torch sees one, else the CPU. ``cuda`` and ``cpu`` as they say.

    ``local_rank % visible`` is right both where every process sees all GPUs of its node and where each sees only its
    own. The current CUDA device is set, so that nothing lands on GPU 0 by accident.
    """
    if wanted not in ("auto", "cuda", "cpu"):
        raise RankupError("unknown-device", f"there is no device {wanted!r}", hint="auto, cuda or cpu")
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise RankupError(
            "no-cuda",
            "cuda was asked for, but torch sees no GPU",
            context=f"torch {torch.__version__}",
            hint="is this a CPU build of torch, or a node without GPUs? `rankup world` shows what is visible",
        )
    device = torch.device("cuda", world.local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def same_bits_everywhere(device: torch.device) -> None:
    """From now on use kernels that give the same bits on any number of processes."""
    if device.type == "cpu":
        # A kernel's sum depends on its number of threads, and every process has at least one.
        torch.set_num_threads(1)
    else:
        deterministic_kernels()


def deterministic_kernels() -> None:
    """From now on use kernels whose bits are the same in every run; call it before the first matrix product.

    Torch warns of an operation that has no such kernel. That may be harmless (a pool whose windows do not overlap):
    ``rankup verify`` compares the bits.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
