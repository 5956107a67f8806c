"""Everything here needs a GPU; one is enough. Each training has a process of its own: a GPU's switches are global."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if Path(__file__).parent in item.path.parents]
    # A mark, and no fixture: those of all tests would start servers first.
    missing = bool(ours) and not torch.cuda.is_available()
    for item in ours:
        item.add_marker(pytest.mark.gpu)
        item.add_marker(pytest.mark.skipif(missing, reason="needs a CUDA device"))
