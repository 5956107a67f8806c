"""wideresnet-cifar100: the published network, and augmentation that belongs to the sample."""

from __future__ import annotations

import pytest
import torch

from rankup.errors import RankupError
from rankup.runtime.seed import SampleRandom
from rankup.workloads.wideresnet import WideResNet
from rankup.workloads.wideresnet_cifar100 import MEAN, STD, WideresnetCifar100, augmented, normalised


def pixels_of(columns: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Back from normalised to whole pixels."""
    images = columns[0]
    mean, std = torch.tensor(MEAN)[:, None, None], torch.tensor(STD)[:, None, None]
    return ((images * std + mean) * 255).round().to(torch.uint8)


@pytest.mark.parametrize(("depth", "width", "parameters"), [(28, 10, 36_536_884), (16, 4, 2_772_020)])
def test_it_has_as_many_parameters_as_the_published_network(depth, width, parameters):
    with torch.device("meta"):
        network = WideResNet(depth, width)
    assert sum(p.numel() for p in network.parameters()) == parameters


def test_an_image_is_scored_for_each_class_and_every_parameter_learns():
    torch.manual_seed(0)
    network = WideresnetCifar100(depth="10", width="1").model()
    scores = network(torch.randn(4, 3, 32, 32))
    assert scores.shape == (4, 100)
    scores.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())


@pytest.mark.parametrize("setting", [{"depth": "27"}, {"width": "0"}, {"dropout": "1"}, {"augment": "yes"}])
def test_a_setting_that_cannot_be_is_named(setting):
    ((name, value),) = setting.items()
    with pytest.raises(RankupError, match=f"invalid --set {name}={value}"):
        WideresnetCifar100(**setting)


def test_images_are_normalised_per_channel():
    pixels = torch.randint(0, 256, (5, 3, 32, 32), dtype=torch.uint8)
    columns = normalised((pixels, torch.arange(5)), SampleRandom(0, torch.arange(5)))
    expected = (pixels / 255 - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]
    assert torch.allclose(columns[0], expected, atol=1e-5)
    assert torch.equal(pixels_of(columns), pixels)


def test_each_image_is_mirrored_or_not_and_moved_by_four_pixels_at_most_over_black():
    torch.manual_seed(0)
    pixels = torch.randint(1, 256, (64, 3, 32, 32), dtype=torch.uint8)
    seen = pixels_of(augmented((pixels, torch.arange(64)), SampleRandom(5, torch.arange(64))))
    padded = torch.nn.functional.pad(pixels, (4, 4, 4, 4))
    ways = set()
    for number in range(64):
        found = [
            (mirror, row, col)
            for mirror in (False, True)
            for row in range(9)
            for col in range(9)
            if torch.equal(
                seen[number].flip(2) if mirror else seen[number],
                padded[number, :, row : row + 32, col : col + 32],
            )
        ]
        assert len(found) == 1, number
        ways.update(found)
    assert len(ways) > 40
    assert {mirror for mirror, _, _ in ways} == {False, True}
    assert {row for _, row, _ in ways} == {col for _, _, col in ways} == set(range(9))


def test_what_an_image_looks_like_depends_on_the_sample_alone():
    pixels = torch.randint(0, 256, (16, 3, 32, 32), dtype=torch.uint8)
    together = augmented((pixels, torch.arange(16)), SampleRandom(5, torch.arange(16)))[0]
    order = torch.tensor([9, 3])
    apart = augmented((pixels[order], order), SampleRandom(5, order))[0]
    assert torch.equal(apart, together[order])
    assert not torch.equal(together, augmented((pixels, order), SampleRandom(6, torch.arange(16)))[0])
