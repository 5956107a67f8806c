"""Whose line is it, under each launcher."""

from __future__ import annotations

import pytest

from rankup.batch.follow import split_label


@pytest.mark.parametrize(
    ("launcher", "line", "rank", "text"),
    [
        ("torchrun", "[rank 3] loss 0.1", 3, "loss 0.1"),
        ("torchrun", "[rank 12]   indented", 12, "  indented"),
        ("single", "[rank 0] from rankup run", 0, "from rankup run"),
        ("torchrun", "3: not srun's", None, "3: not srun's"),
        ("srun", "3: loss 0.1", 3, "loss 0.1"),
        ("srun", " 3: padded", 3, "padded"),
        ("srun", "10:   indented", 10, "  indented"),
        ("srun", "3: ", 3, ""),
        ("srun", "epoch 3: loss", None, "epoch 3: loss"),
        ("mpirun", "[rank 10]   indented", 10, "  indented"),
        ("srun", "==== rankup: attempt 1 ====", None, "==== rankup: attempt 1 ===="),
    ],
)
def test_a_line_is_its_ranks_without_the_label(launcher, line, rank, text):
    assert split_label(line, launcher) == (rank, text)
