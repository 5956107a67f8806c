"""Precision: in what arithmetic the model computes.

``fp32`` leaves the model as it was made; ``bf16`` computes forward under autocast and keeps the parameters; ``fp64``
makes parameters and inputs double, for proofs rather than for speed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from rankup.core.registry import lookup
from rankup.runtime.nested import map_tensors


@dataclass(frozen=True)
class Precision:
    """``parameters``: dtype of weights and inputs, None to leave them; ``autocast``: dtype inside forward, or None."""

    name: str
    parameters: torch.dtype | None
    autocast: torch.dtype | None

    def apply(self, model: nn.Module, device: torch.device) -> nn.Module:
        """``model`` on ``device`` in this precision, in place (parameters stay the same objects)."""
        model.to(device)
        if self.parameters is torch.float64:
            model.double()  # not .to(dtype): that would drop the imaginary part of complex parameters
        if self.autocast is not None:
            _AroundForward(device.type, self.autocast).attach(model)
        return model

    def cast(self, value: torch.Tensor) -> torch.Tensor:
        """An input in the parameters' dtype, where it is a floating-point tensor."""
        if self.parameters is not None and value.is_floating_point():
            return value.to(self.parameters)
        return value


FP64 = Precision("fp64", torch.float64, None)
FP32 = Precision("fp32", None, None)
BF16 = Precision("bf16", None, torch.bfloat16)
_TABLE = {name: f"rankup.runtime.precision:{name.upper()}" for name in ("fp64", "fp32", "bf16")}


def make_precision(name: str) -> Precision:
    precision = lookup("precision", name, _TABLE)
    assert isinstance(precision, Precision)
    return precision


class _AroundForward:
    """Autocast around forward, and fp32 out of it: a loss is computed outside, where bf16 would lose digits.

    Hooks, not a replaced ``forward``: a deep copy of the model (a moving average) must run its own forward.
    """

    def __init__(self, device_type: str, dtype: torch.dtype) -> None:
        self._device_type = device_type
        self._dtype = dtype
        self._entered: list[torch.autocast] = []

    def attach(self, model: nn.Module) -> None:
        model.register_forward_pre_hook(self.enter)
        model.register_forward_hook(self.leave, always_call=True)  # when forward raises, too

    def enter(self, model: nn.Module, args: Any) -> None:
        context = torch.autocast(self._device_type, dtype=self._dtype)
        context.__enter__()  # type: ignore[no-untyped-call]
        self._entered.append(context)

    def leave(self, model: nn.Module, args: Any, output: Any) -> Any:
        self._entered.pop().__exit__(None, None, None)
        return map_tensors(_widen, output)


def _widen(value: torch.Tensor) -> torch.Tensor:
    return value.float() if value.dtype in (torch.bfloat16, torch.float16) else value
