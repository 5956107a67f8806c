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
        self._uuids: list[str | None] = []
        # Whatever is wrong with a driver or its library, a run without GPU samples is better than none. So NVML's
        # errors are caught as a whole here: a half-installed one raises AttributeError and OSError as well.
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml
            self._devices = self._find(visible)
            self._uuids = [self._uuid(handle) for _, handle in self._devices]
        except Exception:
            return

    def read(self) -> list[dict[str, float | int | str | None]]:
        """A dict for each GPU that answers: ``index`` is NVML's, as nvidia-smi shows it, ``uuid`` its name everywhere;
        None for what it does not tell (a MIG instance tells its memory alone)."""
        samples = [self._sample(handle) for _, handle in self._devices]
        return [
            {"index": index, "uuid": uuid, **one}
            for (index, _), uuid, one in zip(self._devices, self._uuids, samples, strict=True)
            if any(value is not None for value in one.values())
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

    def _uuid(self, handle: Any) -> str | None:
        try:
            return _text(self._nvml.nvmlDeviceGetUUID(handle))
        except Exception:  # see above
            return None

    def _memory(self, handle: Any) -> Any:
        try:
            return self._nvml.nvmlDeviceGetMemoryInfo(handle)
        except Exception:  # see above
            return None

    def _sample(self, handle: Any) -> dict[str, float | int | None]:
        nvml, memory = self._nvml, self._memory(handle)
        return {
            "utilization": _told(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
            "memory_bytes": _told(lambda: memory.used),
            "memory_total": _told(lambda: memory.total),
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
