"""The job's GPUs on this node, from NVML (nvidia-ml-py); none without it, without a driver, or if it fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Device = tuple[int, Any]  # NVML's number and handle


class Gpus:
    """``visible`` is CUDA_VISIBLE_DEVICES of the job's processes: None for all GPUs of the node."""

    def __init__(self, visible: str | None) -> None:
        self._nvml: Any = None
        self._devices: list[Device] = []
        # Whatever is wrong with a driver or its library, a run without GPU samples is better than none. So NVML's
        # errors are caught as a whole here: a half-installed one raises AttributeError and OSError as well.
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml
            self._devices = self._find(visible)
        except Exception:
            return

    def read(self) -> list[dict[str, float | int | None]]:
        """A dict for each GPU that answers: ``index`` is NVML's, as nvidia-smi shows it; None for what it does not
        tell (a MIG instance tells its memory alone)."""
        samples = [self._sample(*device) for device in self._devices]
        return [
            one for one in samples if any(value is not None for key, value in one.items() if key != "index")
        ]

    def _find(self, visible: str | None) -> list[Device]:
        nvml = self._nvml
        installed = [
            (index, nvml.nvmlDeviceGetHandleByIndex(index)) for index in range(nvml.nvmlDeviceGetCount())
        ]
        if visible is None:
            return installed
        found: list[Device] = []
        for entry in visible.split(","):
            device = self._device_named(entry.strip(), installed)
            if device is None:  # as in CUDA, the first entry that names no device ends the list
                break
            found.append(device)
        return found

    def _device_named(self, entry: str, installed: list[Device]) -> Device | None:
        nvml = self._nvml
        if entry.isascii() and entry.isdigit():
            return next((device for device in installed if device[0] == int(entry)), None)
        if entry.startswith("MIG-"):
            part = nvml.nvmlDeviceGetHandleByUUID(entry)
            whole = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part)
            return nvml.nvmlDeviceGetIndex(whole), part
        if not entry.startswith("GPU-"):
            return None
        return next(
            (one for one in installed if _text(nvml.nvmlDeviceGetUUID(one[1])).startswith(entry)), None
        )

    def _sample(self, index: int, handle: Any) -> dict[str, float | int | None]:
        nvml = self._nvml
        return {
            "index": index,
            "utilization": _told(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
            "memory_bytes": _told(lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used),
            "power_w": _told(lambda: round(nvml.nvmlDeviceGetPowerUsage(handle) / 1000, 1)),
            "temperature_c": _told(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
        }


def _told(ask: Callable[[], Any]) -> float | int | None:
    try:
        value = ask()
    except Exception:  # not supported, or this GPU is lost: see above
        return None
    return value if isinstance(value, (int, float)) else None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value  # older bindings
