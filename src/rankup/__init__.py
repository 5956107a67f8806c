"""rankup: from one process on a laptop to many GPUs on many nodes, and still the same model, only faster.

The public names are imported on demand: ``import rankup`` loads no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rankup.core.registry import load

__version__ = "0.1.0"

if TYPE_CHECKING:
    from rankup.errors import RankupError as RankupError
    from rankup.runtime.data import ResidentData as ResidentData
    from rankup.runtime.meter import Meter as Meter
    from rankup.runtime.run import Run as Run
    from rankup.runtime.run import init as init
    from rankup.runtime.stop import should_stop as should_stop
    from rankup.runtime.survival import Snapshots as Snapshots
    from rankup.snapshots.prune import Keep as Keep
    from rankup.world import World as World

_PUBLIC = {
    "Keep": "rankup.snapshots.prune:Keep",
    "Meter": "rankup.runtime.meter:Meter",
    "RankupError": "rankup.errors:RankupError",
    "ResidentData": "rankup.runtime.data:ResidentData",
    "Run": "rankup.runtime.run:Run",
    "Snapshots": "rankup.runtime.survival:Snapshots",
    "World": "rankup.world:World",
    "init": "rankup.runtime.run:init",
    "should_stop": "rankup.runtime.stop:should_stop",
}

__all__ = [
    "Keep",
    "Meter",
    "RankupError",
    "ResidentData",
    "Run",
    "Snapshots",
    "World",
    "__version__",
    "init",
    "should_stop",
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return load(_PUBLIC[name])
    raise AttributeError(f"module 'rankup' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
