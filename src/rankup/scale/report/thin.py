"""Fewer points of a curve, without losing a spike."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Indices = NDArray[np.intp]


def thinned(values: Numbers, most: int) -> Indices:
    """The indices of at most ``most`` (at least 4) of ``values``, all finite.

    The curve is cut into stretches of equally many points; the least and the greatest of each stay, and the first and
    the last point. So the drawn curve has the extremes of the measured one, which means and samples would hide.
    """
    count = len(values)
    if count <= most:
        return np.arange(count)
    buckets = (most - 2) // 2
    edges = np.linspace(0, count, buckets + 1).astype(np.intp)[:-1]
    stretch = np.searchsorted(edges, np.arange(count), side="right")
    order: NDArray[Any] = np.lexsort((values, stretch))
    ends = np.append(edges[1:], count)
    kept = np.concatenate(([0, count - 1], order[edges], order[ends - 1]))
    return np.unique(kept)
