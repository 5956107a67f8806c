"""mnist-cnn: the textbook's network, faster but not another one; augmentation that only moves."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from rankup.errors import RankupError
from rankup.runtime.seed import SampleRandom
from rankup.workloads.dropout import ByteDropout
from rankup.workloads.mnist_cnn import MEAN, STD, MnistCnn, MnistNet, normalised, shifted


def textbook(net: MnistNet, x: torch.Tensor) -> torch.Tensor:
    x = F.relu(net.conv1(x))
    x = F.relu(net.conv2(x))
    x = F.max_pool2d(x, 2)
    x = torch.flatten(x, 1)
    x = F.relu(net.dense1(x))
    return F.log_softmax(net.dense2(x), dim=1)


def test_the_network_and_its_gradients_are_the_textbooks():
    torch.manual_seed(0)
    net = MnistNet(dropout=False).double()
    x, y = torch.randn(6, 1, 28, 28, dtype=torch.float64), torch.arange(6)
    gradients = []
    for forward in (net, lambda x: textbook(net, x)):
        net.zero_grad()
        F.nll_loss(forward(x), y).backward()
        gradients.append([p.grad.clone() for p in net.parameters()])
    assert torch.allclose(net(x), textbook(net, x), atol=1e-12)
    for ours, theirs in zip(*gradients, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-12)
    assert sum(p.numel() for p in net.parameters()) == 1_199_882


def test_dropout_is_a_setting_and_its_rates_are_the_textbooks():
    assert [MnistNet().dropout1.p, MnistNet().dropout2.p] == [0.25, 0.5]
    net = MnistCnn(dropout="off").model()
    x = torch.randn(2, 1, 28, 28)
    assert torch.equal(net(x), net(x))
    with pytest.raises(RankupError, match="dropout=maybe"):
        MnistCnn(dropout="maybe")


def test_images_are_normalised_as_the_tutorials_do_it():
    pixels = torch.randint(0, 256, (3, 28, 28), dtype=torch.uint8)
    images, labels = normalised((pixels, torch.arange(3)), SampleRandom(0, torch.arange(3)))
    assert images.shape == (3, 1, 28, 28)
    assert torch.allclose(images[:, 0], (pixels / 255 - MEAN) / STD, atol=1e-6)
    assert labels.tolist() == [0, 1, 2]


def test_augmentation_moves_an_image_by_two_pixels_at_most_and_depends_on_the_sample_alone():
    pixels = torch.zeros(64, 28, 28, dtype=torch.uint8)
    pixels[:, 10, 20] = 255
    labels = torch.zeros(64)
    moved, _ = shifted((pixels, labels), SampleRandom(3, torch.arange(64)))
    places = {divmod(int(image[0].argmax()), 28) for image in moved}
    assert places <= {(10 + r, 20 + c) for r in range(-2, 3) for c in range(-2, 3)}
    assert len(places) > 12
    alone, _ = shifted((pixels[40:41], labels[40:41]), SampleRandom(3, torch.tensor([40])))
    assert torch.equal(alone[0], moved[40])


@pytest.mark.parametrize("p", [0.25, 0.5])
def test_byte_dropout_drops_as_often_in_every_place_and_scales_the_rest(p):
    torch.manual_seed(0)
    dropout = ByteDropout(p)
    x = torch.ones(4000, 17, requires_grad=True)
    y = dropout(x)
    assert y.unique().tolist() == pytest.approx([0.0, 1 / (1 - p)])
    dropped = (y == 0).flatten()[: 4000 * 16].reshape(-1, 8).float().mean(0)  # each byte of a word
    assert ((dropped - p).abs() < 0.025).all()
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())  # what is dropped gets no gradient
    assert torch.equal(dropout.eval()(x), x)
    again = ByteDropout(p)
    torch.manual_seed(0)
    assert torch.equal(again(x), y)


def test_byte_dropout_refuses_a_probability_that_bytes_do_not_give():
    with pytest.raises(ValueError, match="256ths"):
        ByteDropout(0.1)
