"""Plain tables, the nearest name, job arrays and lists of numbers: one way each."""

from __future__ import annotations

import pytest

from rankup.core.arrays import indices, parse_array, parse_numbers
from rankup.core.columns import aligned
from rankup.core.nearest import did_you_mean, nearest


def test_columns_are_as_wide_as_their_longest_cell_and_lines_end_without_spaces():
    assert aligned([("name", "n", ""), ("a", "10", "x"), ("long one", "9", "")], right={1}) == [
        "name       n",
        "a         10  x",
        "long one   9",
    ]


def test_a_cell_beyond_the_widest_moves_its_own_line_alone():
    assert aligned([("a", "1"), ("b" * 9, "2")], widest=3) == ["a  1", "bbbbbbbbb  2"]


def test_the_nearest_name_is_offered_and_a_far_one_is_not():
    assert nearest("trian.py", ["train.py", "test.py"]) == "train.py"
    assert did_you_mean("trian.py", ["train.py"]) == "; did you mean 'train.py'?"
    assert did_you_mean("--lr", ["--help"]) == ""
    assert did_you_mean("--batchsize", ["--help", "--batch-size"]) == "; did you mean '--batch-size'?"
    assert did_you_mean("zzz", ["train.py"]) == ""


@pytest.mark.parametrize(
    ("array", "expected"), [("", []), ("7", [7]), ("0-6:2,9%4", [0, 2, 4, 6, 9]), ("1-3,2-4", [1, 2, 3, 4])]
)
def test_an_array_is_its_indices(array, expected):
    assert indices(array) == expected


@pytest.mark.parametrize("array", ["a", "1-", "3-1", "0-4:0", "1,,2", "0-9%", "0-9%x", "1:2", "٣"])
def test_what_is_no_array(array):
    with pytest.raises(ValueError, match="not a list of indices"):
        parse_array(array)


def test_a_list_of_numbers_names_the_word_that_is_none():
    assert parse_numbers("4, 1,2") == [4, 1, 2]
    for text, word in (("1,two", "two"), ("0,1", "0"), ("1,", ""), ("-1", "-1"), ("²", "²")):
        with pytest.raises(ValueError, match=f"^{word}$"):
            parse_numbers(text)
