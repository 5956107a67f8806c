"""Early stop: so many good epochs in a row, also across a resume."""

from __future__ import annotations

import pytest

from rankup.train.early_stop import EarlyStop


@pytest.mark.parametrize(
    ("patience", "accuracies", "stops_after"),
    [
        (1, [0.5, 0.8, 0.9], 2),
        (2, [0.8, 0.7, 0.9, 0.8], 4),  # one bad epoch begins the row anew
        (3, [0.8, 0.9, 0.7, 0.9], None),
    ],
)
def test_it_is_reached_after_so_many_good_epochs_in_a_row(patience, accuracies, stops_after):
    stop = EarlyStop(0.8, patience)
    reached = []
    for accuracy in accuracies:
        stop.epoch_ended(accuracy)
        reached.append(stop.reached)
    assert (reached.index(True) + 1 if True in reached else None) == stops_after


def test_without_a_target_it_is_never_reached():
    stop = EarlyStop(None, 1)
    stop.epoch_ended(1.0)
    assert not stop.reached


def test_a_resume_goes_on_counting():
    before, after = EarlyStop(0.8, 2), EarlyStop(0.8, 2)
    before.epoch_ended(0.9)
    after.load_state_dict(before.state_dict())
    assert not after.reached
    after.epoch_ended(0.8)
    assert after.reached
