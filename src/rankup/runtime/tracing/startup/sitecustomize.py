"""Python runs this file first in each process of an attempt of ``rankup verify`` or ``rankup drill``, which put its
folder first in PYTHONPATH. It waits until a program imports torch, and then records its steps
(``script_hooks.py``). The Python of a job need not have rankup."""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
import time
from collections.abc import Callable
from functools import partial
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
_RANKUP = _HERE.parents[2]


class _After:
    """A finder that finds nothing by itself: it has a module imported, and then calls ``then``. Many packages look for
    a module, and import it later or never."""

    def __init__(self, module: str, then: Callable[[], None]) -> None:
        self._module, self._then = module, then
        self._asks = False

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        if name != self._module or self._asks:
            return None
        self._asks = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._asks = False
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                sys.meta_path.remove(self)
                run(module)
                self._then()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


# `python script.py` has none of them. They go when the script imports torch: rankup's own guard, which does not, needs
# them.
_OF_A_LAUNCHER = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK"),
    *("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"),
)


def _record() -> None:
    _find_rankup()
    if os.environ.get("RANKUP_TRACE_ALONE") == "1" and "SLURM_JOB_ID" not in os.environ:
        for name in _OF_A_LAUNCHER:
            os.environ.pop(name, None)
    from rankup.runtime.tracing.script_hooks import record

    record()


def _wrap_writer(module: str) -> None:
    _find_rankup()
    from rankup.runtime.tracing.written_files import imported

    imported(module)


def _find_rankup() -> None:
    """Where this Python has none: this one alone, and not what is installed beside it."""
    if importlib.util.find_spec("rankup") is None:
        spec = importlib.util.spec_from_file_location(
            "rankup", _RANKUP / "__init__.py", submodule_search_locations=[str(_RANKUP)]
        )
        assert spec is not None and spec.loader is not None
        sys.modules["rankup"] = package = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(package)


def _run_the_other() -> None:
    """The file of this name that the environment has besides."""
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def _read_variables() -> None:
    """What PBS starts on another node has the variables of the job, and not those of its script."""
    path = Path(os.environ.get("RANKUP_ATTEMPTS", ""), os.environ.get("PBS_JOBID", "") + ".env")
    if "RANKUP_ATTEMPTS" in os.environ and path.is_file():
        for variable in filter(None, path.read_text().split("\0")):
            name, _, value = variable.partition("=")
            os.environ.setdefault(name, value)


def _hasten(factor: float) -> None:
    """Let the script's clocks run ``factor`` times faster, so that what it writes of them is another number. Those by
    which Python, torch and rankup wait stay as they are."""
    standard = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), "<frozen")
    records = str(_RANKUP / "runtime" / "records")  # the seconds of an epoch

    def waits(file: str) -> bool:
        if file.startswith(str(_RANKUP)):
            return not file.startswith(records)
        return f"{os.sep}torch{os.sep}" in file or (file.startswith(standard) and "-packages" not in file)

    def faster(clock: Callable[[], float]) -> Callable[[], float]:
        began = clock()

        def read() -> float:
            now = clock()
            if waits(sys._getframe(1).f_code.co_filename):
                return now
            return began + type(now)((now - began) * factor)

        return read

    for name in ("time", "monotonic", "perf_counter", "process_time"):
        setattr(time, name, faster(getattr(time, name)))
        setattr(time, f"{name}_ns", faster(getattr(time, f"{name}_ns")))


_read_variables()
if "RANKUP_CLOCK" in os.environ:
    _hasten(float(os.environ["RANKUP_CLOCK"]))
if "RANKUP_TRACE" in os.environ:
    sys.meta_path[:0] = [_After("torch", _record)]
    sys.meta_path[:0] = [_After(name, partial(_wrap_writer, name)) for name in ("safetensors", "h5py")]
sys.path[:] = [path for path in sys.path if Path(path).resolve() != _HERE]
_run_the_other()
