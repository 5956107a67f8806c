"""Faults that show on other numbers of processes alone, and trainings that only look as if they had one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from forked_attempts import prove

from rankup.errors import RankupError
from rankup.verify.proof import Proof
from rankup.verify.scenario import VerifyPlan
from rankup.verify.table import text

pytestmark = pytest.mark.usefixtures("warm_python")  # for the comparisons of what two scripts end with

# 25 samples: the last batch of each epoch has one sample, so that a fault in the sharing does not show there.
PROGRAM = """\
import copy
import torch
from torch import nn
import rankup

run = rankup.init(precision="{precision}")
world = run.world.world_size
points = torch.randn(25, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
dataset = rankup.ResidentData(points, points.sum(1, keepdim=True))
sgd = lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9)
model, opt, data = run.prepare(nn.Linear(3, 1), sgd, dataset, global_batch=6)
{before}
for epoch in run.epochs(3):
    for x, y in epoch:
        {step}
        x, y = x.to(model.weight.dtype), y.to(model.weight.dtype)
        loss = {loss}
        run.backward(loss)
        run.step(opt)
        {post}
    {behind}
{after}
"""
MEAN = "(model(x) - y).square().mean()"


def program(
    before: str = "",
    step: str = "",
    loss: str = MEAN,
    post: str = "",
    behind: str = "pass",
    after: str = "",
    precision: str = "fp64",
) -> str:
    return PROGRAM.format(
        before=before, step=step, loss=loss, post=post, behind=behind, after=after, precision=precision
    )


AVERAGE = "average = copy.deepcopy(model)\nrun.register(average=average)"
LERP = "[a.data.lerp_(b.data, {}) for a, b in zip(average.parameters(), model.parameters())]"
SECOND = f"""\
run = rankup.init(name="second", precision="fp64")
model, opt, data = run.prepare(nn.Linear(3, 1), sgd, dataset, global_batch=6)
for x, y in run.steps(data, epochs=2):
    run.backward({MEAN})
    run.step(opt)
"""
FAULTS = {
    "a_sum_as_if_it_were_a_mean": program(loss="(model(x) - y).square().sum() / 6"),
    "statistics_of_a_share": program(step="x = x - x.mean(0)"),
    "a_rate_of_the_first_epoch": program(step="x = x * (world if epoch.index == 0 else 1)"),
    "weights_changed_after_the_loop": program(after="model.weight.data.div_(world)"),
    "a_registered_average": program(AVERAGE, post=LERP.format("0.1 * world")),
    "the_first_of_two_trainings": program(step="x = x * world", after=SECOND),
    "a_loop_that_break_leaves": program(step="x = x * world", behind="if epoch.index == 1: break"),
}
RIGHT = {
    "a_loop_that_break_leaves": program(behind="if epoch.index == 1: break"),
    "an_average_taken_at_the_end": program(
        AVERAGE, post=LERP.format(0.1), after="model.load_state_dict(average.state_dict())"
    ),
    "a_rate_and_a_list_from_losses": program(
        "losses = []\nrun.register(losses=losses)",
        post="run.meter.add(loss=loss)",
        behind="losses.append(run.meter.means()['loss']); opt.param_groups[0]['lr'] = 0.01 * losses[-1]",
    ),
    "two_trainings": program(after=SECOND),
    "a_registered_clock": program(
        "values = run.register(seconds=0.0)\nimport time",
        behind="values.seconds = run.sum(time.perf_counter() if run.world.is_main else 0.0)",
    ),
}


def proved(folder: Path, script: str) -> Proof:
    (folder / "script.py").write_text(script)
    return prove(folder / "script.py", VerifyPlan(1, kills=0, worlds=(1, 2)))


def _few(scripts: dict[str, str], *names: str) -> list[Any]:
    """All of them; those that are not named wait for the campaign."""
    return [
        pytest.param(script, id=name, marks=[] if name in names else pytest.mark.campaign)
        for name, script in scripts.items()
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    _few(FAULTS, "a_registered_average"),
)
def test_a_fault_that_needs_several_processes_is_found_wherever_it_was_stopped(script: str, tmp_path: Path):
    proof = proved(tmp_path, script)
    assert [finding.code for finding in proof.findings] == ["other-model"]
    assert text(proof).endswith("when it is continued or repeated on other numbers of processes")


@pytest.mark.slow
@pytest.mark.parametrize("script", _few(RIGHT, "a_rate_and_a_list_from_losses"))
def test_a_right_training_is_the_same_on_other_numbers_of_processes(script: str, tmp_path: Path):
    proof = proved(tmp_path, script)
    assert proof.same and not proof.findings
    assert [scenario.processes for scenario in proof.scenarios] == ["1", "1→2", "2"]


BREAK = program(behind="if epoch.index == 1: break")


@pytest.mark.campaign
def test_a_loop_that_break_leaves_under_any_world_has_no_snapshot_and_every_step_compared(tmp_path: Path):
    proof = proved(tmp_path, BREAK.replace('"fp64"', '"fp64", exact="any-world"'))
    assert [scenario.verdict for scenario in proof.scenarios] == ["identical"] * 3


@pytest.mark.slow
def test_a_sharded_loop_that_break_leaves_is_one_error_that_says_what_to_call(tmp_path: Path):
    with pytest.raises(RankupError) as caught:
        proved(tmp_path, BREAK.replace('"fp64"', '"fp64", strategy="fsdp"'))
    assert caught.value.code == "no-snapshot" and "run.save()" in caught.value.hint


@pytest.mark.campaign
def test_an_option_that_follows_from_losses_may_be_rounded_in_fp32(tmp_path: Path):
    script = program(
        post="run.meter.add(loss=loss)",
        behind="opt.param_groups[0]['lr'] = 0.01 * run.meter.means()['loss']",
        precision="fp32",
    )
    proof = proved(tmp_path, script)
    assert proof.same and {finding.code for finding in proof.findings} <= {"rounding-not-judged"}


@pytest.mark.slow
def test_a_logged_number_that_depends_on_the_number_of_processes_is_named_and_is_no_difference(
    tmp_path: Path,
):
    proof = proved(
        tmp_path, program(behind="run.log(mse=loss.item() / world, seconds=__import__('time').time())")
    )
    assert proof.same
    assert ["logs other numbers: mse." in note for note in proof.notes].count(True) == 1
    assert "seconds" not in " ".join(proof.notes)


@pytest.mark.slow
def test_steps_whose_weights_are_no_numbers_prove_nothing(tmp_path: Path):
    proof = proved(tmp_path, program(step="x = x * float('nan')"))
    assert proof.same and not proof.proved
    assert "steps after step 1: the weights are NaN or infinite" in proof.not_crossed[-1]
