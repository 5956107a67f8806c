"""What a script may do with the data that ``prepare`` returns, as with a DataLoader: its length, but no loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import rankup
from rankup.errors import RankupError

ROWS = torch.arange(22.0).reshape(11, 2)


class Streamed(torch.utils.data.IterableDataset[Any]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(ROWS)


def prepared(data: Any, **options: Any) -> Any:
    run = rankup.init()
    return run.prepare(nn.Linear(2, 1), torch.optim.SGD, data, global_batch=4, **options)[2]


@pytest.mark.parametrize("data", [torch.utils.data.TensorDataset(ROWS), rankup.ResidentData(ROWS)])
def test_the_length_of_prepared_data_is_its_steps(data: Any):
    assert len(prepared(data)) == 3
    assert len(prepared(data, drop_last=True)) == 2


def test_a_stream_has_no_length_and_is_there():
    data = prepared(Streamed())
    assert data
    with pytest.raises(TypeError, match="no number of steps"):
        len(data)


@pytest.mark.parametrize(
    "data", [torch.utils.data.TensorDataset(ROWS), rankup.ResidentData(ROWS), Streamed()]
)
@pytest.mark.parametrize("use", [list, iter, enumerate])
def test_a_loop_over_prepared_data_is_an_error_that_names_the_loops_there_are(
    data: Any, use: Callable[[Any], Any]
):
    with pytest.raises(RankupError) as error:
        use(prepared(data))
    assert error.value.code == "data-iterated"
    assert "run.epochs" in str(error.value.hint)
