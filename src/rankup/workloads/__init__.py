"""Floor 5: the built-in examples. Each is a model, its data, its loss and its metric; ``rankup.train`` trains them."""

from __future__ import annotations

# name → import target
WORKLOADS = {
    "mnist-cnn": "rankup.workloads.mnist_cnn:MnistCnn",
}
