"""Answers one-liners of job scripts about the GPUs of a node that is only pretended: ``torch.cuda.device_count()``."""

from __future__ import annotations

import os
from types import SimpleNamespace

__version__ = "2.6.0"


def _count() -> int:
    return len([one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one])


cuda = SimpleNamespace(
    device_count=_count,
    is_available=lambda: _count() > 0,
    get_device_name=lambda index=0: "pretended GPU",
    current_device=lambda: 0,
    nccl=SimpleNamespace(version=lambda: (2, 21, 5)),
)
version = SimpleNamespace(cuda="12.4", hip=None)
distributed = SimpleNamespace(is_available=lambda: True, is_nccl_available=lambda: True)
