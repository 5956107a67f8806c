"""Published weak-scaling curves: V100-SXM2-16G, 8 per node, 100 Gb/s InfiniBand; samples/s at 1, 4, 8, 16, 32 GPUs.

Source: the tables of the DLPerf project (https://github.com/Oneflow-Inc/DLPerf). The width of a prediction's interval
rests on them (``rankup.scale.predict.interval``); the bench of predictions predicts each curve's last number.
"""

from __future__ import annotations

from dataclasses import dataclass

from rankup.scale.predict.points import Point, Size

GPUS = (1, 4, 8, 16, 32)
PER_NODE = 8


@dataclass(frozen=True)
class Curve:
    """``setup``: curves of one setup share model, program and precision, and so their errors."""

    name: str
    setup: str
    rates: tuple[float, ...]

    def points(self, most: int = GPUS[-1]) -> list[Point]:
        """The measurements on at most ``most`` GPUs."""
        return [
            Point(Size(-(-count // PER_NODE), min(count, PER_NODE)), rate)
            for count, rate in zip(GPUS, self.rates, strict=True)
            if count <= most
        ]


CURVES = (
    Curve("ResNet-50 FP32, 48 loader workers", "resnet", (348.62, 1226.38, 2632.93, 5115.4, 10021.29)),
    Curve("ResNet-50 FP32, 8 loader workers", "resnet", (306.35, 1079.19, 1070.37, 2093.53, 4119.84)),
    Curve("ResNet-50 FP32, NVIDIA's script", "resnet-nvidia", (367.29, 1449.48, 2887.65, 5716.79, 10917.09)),
    Curve("ResNet-50 AMP, NVIDIA's script", "resnet-nvidia", (802.9, 3137.44, 6154.66, 11991.94, 22551.16)),
    Curve("BERT-Base FP32, batch 32", "bert-fp32", (119.6, 457.72, 921.32, 1499.4, 2885.81)),
    Curve("BERT-Base FP32, batch 48", "bert-fp32", (121.94, 464.66, 928.01, 1584.32, 3039.3)),
    Curve("BERT-Base FP16, batch 64", "bert-fp16", (444.51, 1671.66, 3251.7, 4936.92, 9331.72)),
    Curve("BERT-Base FP16, batch 96", "bert-fp16", (462.35, 1727.93, 3287.12, 5426.07, 10349.12)),
)
