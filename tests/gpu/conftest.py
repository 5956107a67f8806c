"""Everything here needs a GPU; one is enough. Each training has a process of its own: a GPU's switches are global."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(autouse=True)
def a_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
