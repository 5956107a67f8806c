"""Larger configurations are predicted from smaller ones before they run, and scored afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest
from studies import measured

from rankup.scale.journal import Journal, StudyPlan
from rankup.scale.plan import Trial
from rankup.scale.predicted import Predictions
from rankup.scale.results import Configuration, StudyResults


class Study:
    """Configurations that are measured one after the other: 1 process takes 8 s, n take 8 / n + 0.5; in weak scaling
    8 + 0.5."""

    def __init__(self, folder, counts=(1, 2, 4, 8), scaling="strong", **given):
        self.plan = StudyPlan(command=["x"], grid={"nproc": counts}, scaling=scaling)
        self.journal = Journal.create(folder, self.plan)
        self.done, self.said, self.given = {}, [], given
        self.predictions = Predictions(self.journal, self.collect, self.said.append)

    def collect(self, journal):
        found = [Configuration(dict(p), self.done.get(p, [])) for p in self.plan.points]
        return StudyResults("x", self.plan.scaling, found, {}, 3)

    def run(self):
        for trial in self.plan.order:
            self.predictions.before(trial)
            n = trial.processes
            grown = n if self.plan.scaling == "weak" else 1
            samples = self.given.get("samples", 1000) * grown
            one = measured(n, 8 / n * grown + 0.5 * (n > 1), repeat=trial.repeat, samples=samples)
            if trial.repeat:
                self.done.setdefault(trial.point, []).append(one)
            self.predictions.after(trial, one if trial.repeat else None)
        self.journal.close()


def test_a_larger_size_is_predicted_before_its_first_run_and_scored(tmp_path):
    study = Study(tmp_path / "s")
    study.run()
    predicted, scored = study.said
    assert predicted.startswith("  nproc=8: predicted: 1.5 s (")
    assert predicted.endswith("; linear: 1.2 s")
    assert "within its interval" in scored and scored.endswith("% from linear")
    (noted,) = study.journal.notes("predicted")
    assert noted["point"] == {"nproc": 8} and noted["rate"] == pytest.approx(667, rel=0.05)
    (score,) = study.journal.notes("scored")
    assert score["within"] is True


def test_work_that_nobody_counted_is_predicted_by_its_time(tmp_path):
    study = Study(tmp_path / "s", samples=0)
    study.run()
    assert study.said[0].startswith("  nproc=8: predicted: 1.5 s (")


def test_a_size_that_cannot_be_predicted_has_no_line(tmp_path):
    """Nobody has asked for a prediction: a newcomer's first study has two sizes."""
    study = Study(tmp_path / "s", counts=(1, 2))
    study.run()
    assert study.said == []


def test_weak_scaling_is_predicted_as_a_rate(tmp_path):
    study = Study(tmp_path / "s", scaling="weak")
    study.run()
    assert study.said[0].startswith("  nproc=8: predicted: ") and "samples/s" in study.said[0]


def test_other_configurations_tell_nothing_about_this_one(tmp_path):
    study = Study(tmp_path / "s")
    study.plan = replace(study.plan, grid={"nproc": (1, 2, 4, 8), "precision": ("fp32", "bf16")})
    for nproc in (1, 2, 4):
        point = (("nproc", nproc), ("precision", "fp32"))
        study.done[point] = [measured(nproc, 8 / nproc, repeat=i, samples=1000) for i in (1, 2, 3)]
    study.predictions.before(Trial((("nproc", 8), ("precision", "bf16")), 1))
    assert study.said == []
    study.predictions.before(Trial((("nproc", 8), ("precision", "fp32")), 1))
    assert len(study.said) == 1
    study.journal.close()
