"""A generated file that is out of date is shown by its first differences, with the command that writes it."""

from __future__ import annotations

import pytest

from generated import MOST_LINES, check_generated


def test_the_same_text_passes():
    check_generated("a\nb\n", "a\nb\n", "page.md", "make it")


@pytest.mark.parametrize("lines", [3, 3000])
def test_a_difference_is_short_and_names_the_command(lines):
    with pytest.raises(pytest.fail.Exception) as failed:
        check_generated("a\n" * lines, "a\n" + "b\n" * lines, "page.md", "make it")
    head, *shown = str(failed.value).splitlines()
    assert head == "page.md is out of date: `make it` writes it anew"
    assert {"-a", "+b"} & {*shown} and len(shown) <= MOST_LINES + 1
