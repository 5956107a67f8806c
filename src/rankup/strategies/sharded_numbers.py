"""Numbers that are read from a sharded tensor: the norm of a gradient is that of the whole one, not of a shard.

``parameter.grad.norm()`` of a sharded gradient is a DTensor that still has to be summed over ranks. ``item()``, and so
``float`` and ``bool``, give this rank's part of that sum: a wrong number, without a word. An optimizer that reads norms
in its step (LARS) would train another model. All ranks take a step, so the number is the whole one there. Elsewhere it
is an error: a script may read it on rank 0 alone, which would wait for the others.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.optim import Optimizer

from rankup.errors import RankupError

_reading = [False]  # whether an optimizer's step runs now; of the process, as torch's table of handlers is


def read_whole_numbers(optimizer: Optimizer) -> None:
    """From now on numbers of sharded tensors are whole in steps of ``optimizer``, and an error elsewhere."""
    from torch.distributed.tensor import DTensor

    # A private table, which torch 2.6 to 2.13 have.
    handlers = getattr(getattr(DTensor, "_op_dispatcher", None), "_custom_op_handlers", None)
    if handlers is None:
        return
    handlers[torch.ops.aten._local_scalar_dense.default] = _number
    optimizer.register_step_pre_hook(lambda *_: _reading.__setitem__(0, True))
    optimizer.register_step_post_hook(lambda *_: _reading.__setitem__(0, False))


def _number(read: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """In place of torch's own ``item()`` of a DTensor."""
    tensor = args[0]
    if not any(placement.is_partial() for placement in tensor.placements):
        return read(tensor.to_local())
    if not _reading[0]:
        raise RankupError(
            "sharded-number",
            "a number is read (item, float, bool) from a norm, a sum or a maximum of a sharded tensor, of which each "
            "rank has only a part: it would be another number on each rank",
            hint="call full_tensor() before, on all ranks: parameter.grad.norm().full_tensor().item()",
            exit_code=1,
        )
    return read(tensor.full_tensor())
