"""``dp``: one process, a thread and a replica per GPU (torch's ``DataParallel``), to compare with.

It scatters each batch from the first GPU, copies the whole model to the others in every step, and gathers outputs and
gradients back, all under one interpreter lock: ``ddp`` is faster on every machine. Nothing is exact about its order of
sums either. Without a second GPU it is the model itself.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from rankup.core.whole_lines import warn
from rankup.strategies.base import NO_SYNC_BATCHNORM, Refusals, Strategy
from rankup.strategies.call_through import call_through


class DP(Strategy):
    name = "dp"
    one_process = True
    refuses: ClassVar[Refusals] = {"sync_batchnorm": NO_SYNC_BATCHNORM}

    def wrap(self, model: nn.Module, device: torch.device, *, find_unused_parameters: bool) -> nn.Module:
        gpus = torch.cuda.device_count() if device.type == "cuda" else 0
        if gpus < 2:
            warn(
                f"strategy dp found {gpus} GPUs to spread over: this is plain training on one {device.type} device"
            )
            return model
        warn(
            "strategy dp copies the model to every GPU in every step, from one process: it is here to compare with; "
            "ddp with one process per GPU is faster"
        )
        return call_through(model, nn.DataParallel(model))
