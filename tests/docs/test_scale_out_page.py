"""The tables of the page about ten thousand ranks are those of the benchmark's result."""

from __future__ import annotations

import json

from benchmarks import scale_out_page

from generated import check_generated


def test_the_tables_are_those_of_the_result():
    text = scale_out_page.PAGE.read_text()
    made = scale_out_page.page(text, json.loads(scale_out_page.RESULT.read_text()))
    check_generated(text, made, scale_out_page.PAGE.name, "python -m benchmarks.scale_out_page")
