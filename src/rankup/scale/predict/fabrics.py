"""Links of common machines: line rates by their vendors, latencies by NCCL's own table, efficiencies assumed.

β = line rate of one direction × efficiency. The efficiency is an assumption, to be replaced by a measured sweep. α is
the latency of a hop in NCCL's tuning (src/graph/tuning.cc, ring, Simple): NVLink 3.4 µs, PCIe 5.7 µs, network 9.6 µs.
Ethernet through TCP has 30 µs, which is an assumption.
"""

from __future__ import annotations

from dataclasses import dataclass

from rankup.core.nearest import did_you_mean
from rankup.errors import RankupError
from rankup.scale.predict.links import FREE, Link

_GB = 1e9
_GBIT = 1e9 / 8


@dataclass(frozen=True)
class Fabric:
    """``line_rate`` in bytes/s of one direction of one device (inside) or one port (between nodes)."""

    title: str
    line_rate: float
    efficiency: float
    alpha: float
    source: str

    def link(self, ports: int = 1) -> Link:
        return Link(self.alpha, self.line_rate * self.efficiency * ports)


# NCCL reaches about 80 % of NVLink's and InfiniBand's line rate, TCP about 90 % of Ethernet's: assumed.
INSIDE: dict[str, Fabric] = {
    "nvlink2": Fabric(
        "NVLink 2 (V100)", 150 * _GB, 0.8, 3.4e-6, "NVIDIA V100 data sheet: 300 GB/s both ways"
    ),
    "nvlink3": Fabric(
        "NVLink 3 (A100)", 300 * _GB, 0.8, 3.4e-6, "NVIDIA A100 data sheet: 600 GB/s both ways"
    ),
    "nvlink4": Fabric(
        "NVLink 4 (H100, H200)", 450 * _GB, 0.8, 3.4e-6, "NVIDIA H100 data sheet: 900 GB/s both ways"
    ),
    "pcie4": Fabric("PCIe 4.0 × 16", 32 * _GB, 0.7, 5.7e-6, "PCI-SIG: 16 GT/s × 16 lanes"),
}
BETWEEN: dict[str, Fabric] = {
    "ndr": Fabric(
        "InfiniBand NDR", 400 * _GBIT, 0.8, 9.6e-6, "InfiniBand Trade Association: 400 Gb/s a port"
    ),
    "hdr": Fabric(
        "InfiniBand HDR", 200 * _GBIT, 0.8, 9.6e-6, "InfiniBand Trade Association: 200 Gb/s a port"
    ),
    "edr": Fabric(
        "InfiniBand EDR", 100 * _GBIT, 0.8, 9.6e-6, "InfiniBand Trade Association: 100 Gb/s a port"
    ),
    "slingshot11": Fabric("HPE Slingshot 11", 200 * _GBIT, 0.8, 9.6e-6, "HPE Slingshot: 200 Gb/s a port"),
    "100gbe": Fabric("100 Gigabit Ethernet, TCP", 100 * _GBIT, 0.9, 30e-6, "IEEE 802.3bj"),
    "50gbe": Fabric("50 Gigabit Ethernet, TCP", 50 * _GBIT, 0.9, 30e-6, "IEEE 802.3cd"),
    "25gbe": Fabric("25 Gigabit Ethernet, TCP", 25 * _GBIT, 0.9, 30e-6, "IEEE 802.3by"),
}


def fabric_link(name: str, table: dict[str, Fabric], ports: int = 1) -> Link:
    """The link called ``name``; ``none`` costs nothing. Raises RankupError."""
    if name == "none":
        return FREE
    if name not in table:
        raise RankupError(
            "unknown-fabric",
            f"there is no fabric called {name!r}{did_you_mean(name, table)}",
            hint=f"one of: {', '.join(table)}, none",
        )
    return table[name].link(ports)
