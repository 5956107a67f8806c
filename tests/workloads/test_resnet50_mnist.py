"""resnet50-mnist: the network that everyone calls ResNet-50, and anybody else's in its place."""

from __future__ import annotations

import sys
import types

import pytest
import torch
from torch import nn

from rankup.errors import RankupError
from rankup.workloads.resnet import ResNet50
from rankup.workloads.resnet50_mnist import InColour, Resnet50Mnist


def test_it_has_the_parameters_and_the_names_of_the_published_network():
    with torch.device("meta"):
        network = ResNet50()
    assert sum(p.numel() for p in network.parameters()) == 25_557_032
    shapes = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    assert shapes["conv1.weight"] == (64, 3, 7, 7)
    assert shapes["layer1.0.downsample.0.weight"] == (256, 64, 1, 1)
    assert shapes["layer3.5.conv2.weight"] == (256, 256, 3, 3)
    assert shapes["layer4.2.bn3.running_var"] == (2048,)
    assert shapes["fc.weight"] == (1000, 2048)
    strides = [m.stride for m in network.layer2[0].children() if isinstance(m, nn.Conv2d)]
    assert strides == [(1, 1), (2, 2), (1, 1)]  # variant 1.5


def test_grey_images_are_scored_and_every_block_begins_as_the_identity():
    torch.manual_seed(0)
    network = Resnet50Mnist().model().eval()
    assert network(torch.randn(2, 1, 28, 28)).shape == (2, 10)
    x = torch.randn(2, 256, 7, 7).relu()
    assert torch.equal(network.layer1[1](x), x)


@pytest.fixture
def others_models(monkeypatch) -> None:
    """A package of models as torchvision's: functions that take ``num_classes``."""

    def network(channels: int, num_classes: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(channels, 4, 3), nn.Flatten(), nn.Linear(4 * 26 * 26, num_classes))

    module = types.ModuleType("others_models")
    module.colour = lambda num_classes: network(3, num_classes)
    module.grey = lambda num_classes: network(1, num_classes)
    module.closed = lambda: None
    module.words = lambda num_classes: "no model"
    monkeypatch.setitem(sys.modules, "others_models", module)


@pytest.mark.parametrize(("name", "wrapped"), [("colour", True), ("grey", False)])
def test_somebody_elses_model_is_taken_and_grey_images_fit_it(others_models, name, wrapped):
    network = Resnet50Mnist(model=f"others_models:{name}").model()
    assert isinstance(network, InColour) == wrapped
    assert network(torch.randn(2, 1, 28, 28)).shape == (2, 10)


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("resnet50", "bad-setting"),
        ("no_such_package:resnet50", "model-not-found"),
        ("others_models:absent", "model-not-found"),
        ("others_models:closed", "model-not-found"),
        ("others_models:words", "model-not-found"),
    ],
)
def test_a_model_that_cannot_be_had_is_one_error(others_models, target, code):
    with pytest.raises(RankupError, match=target) as caught:
        Resnet50Mnist(model=target).model()
    assert caught.value.code == code
