"""Planted faults are found, with a cause that fits, and right trainings are proved; each by a whole `rankup verify`."""

from __future__ import annotations

from pathlib import Path

import pytest
from forked_attempts import prove
from planted import FAULTS, RIGHT, Planted

from rankup.errors import RankupError
from rankup.verify.scenario import VerifyPlan

pytestmark = pytest.mark.usefixtures("warm_python")  # for the comparisons of snapshots

# The others run in a campaign (tests/campaign/test_planted_campaign.py).
# One of each kind: lost state, another end, an uninterrupted difference, a file, a printed number.
FEW_FAULTS = (
    "break_by_enumerate",
    "model_of_unseeded_weights",
    "best_model_saved_by_a_variable",
    "printed_mean_of_a_variable",
)
FEW_RIGHT = ("best_model_saved_by_a_registered_number",)
QUICK_FAULTS = ("schedule",)
QUICK_RIGHT = ("evaluation",)


def verdict(planted: Planted, folder: Path, seed: int = 0, epoch_steps: int | None = None) -> str:
    """The code of the finding or of the error; "proved", or "not proved". Its files are as they were."""
    script = folder / f"{planted.name}.py"
    script.write_text(planted.text)
    try:
        proof = prove(script, VerifyPlan(planted.processes, seed=seed, epoch_steps=epoch_steps))
    except RankupError as error:
        return error.code
    assert {path.name for path in folder.iterdir()} == {script.name, "runs"}
    codes = [scenario.finding.code for scenario in proof.scenarios if scenario.finding is not None]
    return codes[0] if codes else "proved" if proof.proved else "not proved"


def found(planted: Planted) -> tuple[str, ...]:
    """A resume that would lose a value stops with its name, before there is anything to compare."""
    return (*planted.expected, "state-lost")


@pytest.mark.repeated
@pytest.mark.parametrize("planted", [p for p in FAULTS if p.name in FEW_FAULTS], ids=lambda p: p.name)
def test_a_planted_fault_is_found(planted: Planted, tmp_path: Path):
    assert verdict(planted, tmp_path) in found(planted)


@pytest.mark.slow
@pytest.mark.parametrize("planted", [p for p in RIGHT if p.name in FEW_RIGHT], ids=lambda p: p.name)
def test_a_right_training_is_proved(planted: Planted, tmp_path: Path):
    assert verdict(planted, tmp_path) == "proved"


@pytest.mark.slow
@pytest.mark.parametrize("planted", [p for p in FAULTS if p.name in QUICK_FAULTS], ids=lambda p: p.name)
def test_a_planted_fault_is_found_in_two_epochs_of_three_steps(planted: Planted, tmp_path: Path):
    assert verdict(planted, tmp_path, epoch_steps=3) in found(planted)


@pytest.mark.slow
@pytest.mark.parametrize("planted", [p for p in RIGHT if p.name in QUICK_RIGHT], ids=lambda p: p.name)
def test_a_right_training_is_proved_in_two_epochs_of_three_steps(planted: Planted, tmp_path: Path):
    assert verdict(planted, tmp_path, epoch_steps=3) == "proved"


def test_names_are_unique_and_there_are_thirty_of_each():
    names = [planted.name for planted in FAULTS + RIGHT]
    assert len(set(names)) == len(names)
    assert len(FAULTS) >= 30 and len(RIGHT) >= 30
    assert set(FEW_FAULTS + FEW_RIGHT + QUICK_FAULTS + QUICK_RIGHT) <= set(names)
