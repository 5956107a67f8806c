"""Names, durations, errors: what people read."""

from __future__ import annotations

import pytest

from rankup.core.registry import lookup
from rankup.core.units import duration, rate
from rankup.errors import RankupError


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.00 s"), (0.417, "0.42 s"), (12.34, "12.3 s"), (59.99, "60.0 s"), (125, "2 min 05 s"),
     (3599.6, "1 h 00 min"), (11220, "3 h 07 min")],
)  # fmt: skip
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_rates_lose_their_decimals_when_they_are_large():
    assert (rate(12.34), rate(1234.5)) == ("12.3", "1,234")


def test_a_name_is_looked_up_in_a_table_and_a_near_miss_is_guessed():
    table = {"text": "rankup.core.units:duration"}
    assert lookup("thing", "text", table) is duration
    with pytest.raises(RankupError, match=r"unknown thing 'texd'; did you mean 'text'\?") as error:
        lookup("thing", "texd", table)
    assert error.value.code == "unknown-thing"


def test_an_error_says_what_where_and_how_to_mend_it():
    error = RankupError("short-code", "it is wrong", context="--flag 3", hint="say 4")
    assert str(error) == "it is wrong [short-code]\n  where: --flag 3\n  hint:  say 4"
    assert error.as_dict()["hint"] == "say 4"
