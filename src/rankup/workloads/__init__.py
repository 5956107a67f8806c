"""The built-in workloads. Each has a model, data, a loss and a metric; ``rankup.train`` trains them.

| module | what |
|---|---|
| ``linear`` | one layer that learns a line |
| ``mnist_cnn`` | the small convolutional network of every PyTorch tutorial |
| ``resnet50_mnist`` | ResNet-50 on images of MNIST's shape |
| ``wideresnet_cifar100`` | a wide residual network on CIFAR-100 |
| ``resnet``, ``wideresnet`` | the two residual networks |
| ``dropout`` | dropout that is cheap on the CPU |
| ``settings`` | the values of ``--set KEY=VALUE`` |
| ``data`` | the data sets: found or fetched, and read as tensors |
"""

from __future__ import annotations

# name → import target
WORKLOADS = {
    "mnist-cnn": "rankup.workloads.mnist_cnn:MnistCnn",
    "resnet50-mnist": "rankup.workloads.resnet50_mnist:Resnet50Mnist",
    "wideresnet-cifar100": "rankup.workloads.wideresnet_cifar100:WideresnetCifar100",
    "linear": "rankup.workloads.linear:Linear",
}
