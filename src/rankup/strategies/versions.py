"""Clear errors for what older versions of torch cannot do."""

from __future__ import annotations

import torch

from rankup.errors import RankupError

TORCH = tuple(map(int, torch.__version__.split(".")[:2]))


def require_torch(version: tuple[int, int], what: str, why: str) -> None:
    """RankupError if torch is older than ``version``, which ``what`` requires."""
    if version > TORCH:
        raise RankupError(
            "torch-too-old",
            f"{what} needs torch {'.'.join(map(str, version))} or later: {why} in {torch.__version__}",
            hint="a newer torch; ddp has no such limit",
        )
