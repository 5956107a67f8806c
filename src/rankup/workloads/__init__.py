"""Floor 5: the built-in examples. Each is a model, its data, its loss and its metric; ``rankup.train`` trains them."""

from __future__ import annotations

# name → import target
WORKLOADS = {
    "mnist-cnn": "rankup.workloads.mnist_cnn:MnistCnn",
    "resnet50-mnist": "rankup.workloads.resnet50_mnist:Resnet50Mnist",
    "wideresnet-cifar100": "rankup.workloads.wideresnet_cifar100:WideresnetCifar100",
    "linear": "rankup.workloads.linear:Linear",
}
