"""Gloo groups of all ranks beside the default one, made once each: every group costs a socket per rank."""

from __future__ import annotations

from datetime import timedelta

import torch.distributed as dist

TIMEOUT = timedelta(minutes=10)

_default: dist.ProcessGroup | None = None  # the one that the others were made beside
_made: dict[tuple[str, timedelta], dist.ProcessGroup] = {}


def gloo_group(purpose: str, timeout: timedelta) -> dist.ProcessGroup:
    """The group for ``purpose``; the same one for the same arguments as long as the default group lives.

    A collective when it is new: ranks ask for the same groups in the same order.
    """
    global _default
    if _default is not dist.group.WORLD:
        _made.clear()
        _default = dist.group.WORLD
    key = (purpose, timeout)
    if key not in _made:
        _made[key] = dist.new_group(backend="gloo", timeout=timeout)
    return _made[key]


def has_groups() -> bool:
    """Whether any was made beside the default group that lives now."""
    return bool(_made) and _default is dist.group.WORLD


def strategy_group() -> dist.ProcessGroup:
    """For numbers that ranks exchange in the course of a step. Not the run's own group: a script may ask for a sum on
    one rank while another one is in its step, and these must not meet."""
    return gloo_group("strategy", TIMEOUT)
