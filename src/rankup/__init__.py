"""rankup: from one process on a laptop to many GPUs on many nodes, and still the same model, only faster.

The public names are imported on demand: ``import rankup`` loads no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rankup.core.registry import load

__version__ = "0.1.0"

if TYPE_CHECKING:
    from rankup.core.rundir import run_directory as run_directory
    from rankup.errors import RankupError as RankupError
    from rankup.runtime.api import Run as Run
    from rankup.runtime.checkpointing.policy import Snapshots as Snapshots
    from rankup.runtime.checkpointing.stop import should_stop as should_stop
    from rankup.runtime.data.resident import ResidentData as ResidentData
    from rankup.runtime.distributed.sections import first as first
    from rankup.runtime.init import init as init
    from rankup.runtime.loop.meter import Meter as Meter
    from rankup.snapshots.layout import Retention as Retention
    from rankup.world import World as World

_PUBLIC = {
    "Retention": "rankup.snapshots.layout:Retention",
    "Meter": "rankup.runtime.loop.meter:Meter",
    "RankupError": "rankup.errors:RankupError",
    "ResidentData": "rankup.runtime.data.resident:ResidentData",
    "Run": "rankup.runtime.api:Run",
    "Snapshots": "rankup.runtime.checkpointing.policy:Snapshots",
    "World": "rankup.world:World",
    "first": "rankup.runtime.distributed.sections:first",
    "init": "rankup.runtime.init:init",
    "run_directory": "rankup.core.rundir:run_directory",
    "should_stop": "rankup.runtime.checkpointing.stop:should_stop",
}

__all__ = [
    "Meter",
    "RankupError",
    "ResidentData",
    "Retention",
    "Run",
    "Snapshots",
    "World",
    "__version__",
    "first",
    "init",
    "run_directory",
    "should_stop",
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return load(_PUBLIC[name])
    raise AttributeError(f"module 'rankup' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
