"""Python runs this file first in each process of an attempt of ``rankup verify``, which puts its folder first in
PYTHONPATH. It waits until a program imports torch, and then records its steps (``any_script.py``)."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent


class _After:
    """A finder that finds nothing by itself: it has a module imported, and then calls ``then``."""

    def __init__(self, module: str, then: Callable[[], None]) -> None:
        self._module, self._then = module, then

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        if name != self._module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                run(module)
                self._then()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _record() -> None:
    from rankup.runtime.tracing.any_script import record

    record()


def _wrap_safetensors() -> None:
    from rankup.runtime.tracing.written_files import imported

    imported("safetensors")


def _run_the_other() -> None:
    """The file of this name that the environment has besides."""
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if "RANKUP_TRACE" in os.environ:
    sys.meta_path[:0] = [_After("torch", _record), _After("safetensors", _wrap_safetensors)]
sys.path[:] = [path for path in sys.path if Path(path).resolve() != _HERE]
_run_the_other()
