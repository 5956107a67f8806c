"""Precision: the arithmetic in which the model computes.

``fp32`` leaves the model as it was made, and turns tf32 off: by default torch lets cudnn's convolutions use it.
``tf32`` allows that, in matrix products too. ``bf16`` and ``fp16`` compute forward under autocast and keep the
parameters; fp16 needs its loss scaled (``loss_scaling.py``). ``fp64`` makes parameters and inputs double, for proofs
rather than for speed.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import get_ident
from typing import Any

import torch
from torch import nn

from rankup.core.registry import lookup
from rankup.errors import RankupError
from rankup.runtime.pytree import map_tensors


@dataclass(frozen=True)
class Precision:
    """``parameters``: dtype of weights and inputs, None to leave them; ``autocast``: dtype inside forward, or None;
    ``gpu_only``: not available on CPUs; ``tf32``: whether a GPU may round fp32 products to it."""

    name: str
    parameters: torch.dtype | None
    autocast: torch.dtype | None
    gpu_only: bool = False
    tf32: bool = False

    @property
    def scaled(self) -> bool:
        """Whether the loss has to be scaled."""
        return self.autocast is torch.float16

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
TF32 = Precision("tf32", None, None, gpu_only=True, tf32=True)
BF16 = Precision("bf16", None, torch.bfloat16)
FP16 = Precision("fp16", None, torch.float16, gpu_only=True)
_TABLE = {
    name: f"rankup.runtime.loop.precision:{name.upper()}" for name in ("fp64", "fp32", "tf32", "bf16", "fp16")
}


def make_precision(name: str, device: torch.device) -> Precision:
    """The precision called ``name``; sets torch's switches for it. RankupError if ``device`` does not support it."""
    precision = lookup("precision", name, _TABLE)
    assert isinstance(precision, Precision)
    if precision.gpu_only and (device.type == "cpu" or (precision.tf32 and device.type != "cuda")):
        needed = "GPUs" if device.type == "cpu" else "GPUs of CUDA"
        raise RankupError(
            "precision-needs-gpu",
            f"precision {name} is for {needed}, and this run is on the {device.type.upper()}",
            hint="fp32, or bf16 where the CPU has instructions for it",
        )
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if precision.tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = precision.tf32
    return precision


class _AroundForward:
    """Autocast around forward, and fp32 out of it: a loss is computed outside, where bf16 would lose digits.

    Hooks, not a replaced ``forward``: a deep copy of the model (a moving average) must run its own forward.
    """

    def __init__(self, device_type: str, dtype: torch.dtype) -> None:
        self._device_type = device_type
        self._dtype = dtype
        self._entered: dict[
            int, list[torch.autocast]
        ] = {}  # by thread: DataParallel's replicas share these hooks

    def attach(self, model: nn.Module) -> None:
        model.register_forward_pre_hook(self.enter)
        model.register_forward_hook(self.leave, always_call=True)  # when forward raises, too

    def enter(self, model: nn.Module, args: Any) -> None:
        context = torch.autocast(self._device_type, dtype=self._dtype)
        context.__enter__()  # type: ignore[no-untyped-call]
        self._entered.setdefault(get_ident(), []).append(context)

    def leave(self, model: nn.Module, args: Any, output: Any) -> Any:
        self._entered[get_ident()].pop().__exit__(None, None, None)
        return map_tensors(_widen, output)


def _widen(value: torch.Tensor) -> torch.Tensor:
    return value.float() if value.dtype in (torch.bfloat16, torch.float16) else value
