"""What two scripts end with is compared by its distance where rounding may explain it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from rankup.runtime.tracing.final_state import compare


def apart(folder: Path, a: Any, b: Any, name: str = "registered/x", *, double: bool = True) -> list[Any]:
    paths = [folder / "a.pt", folder / "b.pt"]
    for path, value in zip(paths, (a, b), strict=True):
        torch.save({"double": double, "values": {name: value}}, path)
    return [(one["left"], one["largest"]) for one in compare(*paths)]


DOUBLES = torch.zeros(2, dtype=torch.float64)


@pytest.mark.parametrize(
    ("a", "b", "found"),
    [
        (DOUBLES, DOUBLES, []),
        (math.nan, math.nan, []),
        (torch.tensor([math.nan]), torch.tensor([math.nan]), []),
        (DOUBLES, DOUBLES + 0.5, [("float64[2]", 0.5)]),
        (DOUBLES, torch.zeros(3, dtype=torch.float64), [("float64[2]", None)]),
        (torch.tensor([1]), torch.tensor([2]), [("int64[1]", None)]),
        (200.0, 100.0, [("float64", 0.5)]),
        (3, 4, [("3", None)]),
        ("min", "max", [("'min'", None)]),
    ],
)
def test_numbers_have_a_distance_and_all_else_is_equal_or_not(tmp_path: Path, a: Any, b: Any, found: Any):
    assert apart(tmp_path, a, b) == found


def test_an_option_is_compared_as_it_is_written_and_a_number_has_the_digits_of_its_training(tmp_path: Path):
    assert apart(tmp_path, 0.1, 0.2, "0/optimizer/groups/w/lr") == [("0.1", None)]
    assert apart(tmp_path, 1.0, 1.5, double=False) == [("float32", 0.5)]
