"""Which code is the script's, and which is installed."""

from __future__ import annotations

import json
import os

import pytest
import torch

import rankup
from rankup.runtime.call_site import call_site, is_library


@pytest.mark.parametrize(
    "file",
    [
        rankup.__file__,
        torch.__file__,
        json.__file__,
        os.__file__,
        "/home/ann/.local/lib/python3.11/site-packages/tqdm/std.py",
        "/cluster/software/PyTorch/2.6/lib/python3.12/site-packages/torch/nn/modules/module.py",
        "/usr/lib/python3/dist-packages/numpy/core/numeric.py",
        "<frozen importlib._bootstrap>",
    ],
)
def test_installed_code_is_a_library_wherever_it_is(file):
    assert is_library(file)


@pytest.mark.parametrize("file", ["/home/ann/train.py", "train.py", "/home/ann/tqdm/mine.py", __file__])
def test_other_code_is_the_scripts(file):
    assert not is_library(file)


def test_the_call_site_is_the_innermost_line_of_the_script():
    def ask():
        return call_site()

    line = ask.__code__.co_firstlineno + 1
    assert ask() == f"{os.path.relpath(__file__)}:{line}"
