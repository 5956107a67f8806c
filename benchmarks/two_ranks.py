"""A contender of two processes: rank 0 is the contender, and starts rank 1 beside it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.contender import Contender
from benchmarks.worker import Play

RANKS = 2


def on_two_ranks(bench: str, name: str, make: Callable[..., Play]) -> Callable[..., Play]:
    """The contender ``name`` of ``bench`` as rank 0, which begins each round together with rank 1."""

    def build(**settings: Any) -> Play:
        if "RANK" in os.environ:
            return make(**settings)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        common = {
            **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
            **{"WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS)},
        }
        threads = torch.get_num_threads()
        other = Contender(bench, name, settings, threads, {**common, "RANK": "1", "LOCAL_RANK": "1"})
        os.environ.update({**common, "RANK": "0", "LOCAL_RANK": "0"})
        play = make(**settings)

        def together() -> float | None:
            other.go()
            own = play()
            other.seconds()
            return own

        return together

    return build
