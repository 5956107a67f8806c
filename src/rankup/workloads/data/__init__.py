"""The data of the built-in workloads: found on this machine or fetched with a checksum, then read as tensors.

| file | what |
|---|---|
| ``catalog`` | what is known: names, files, checksums, mirrors |
| ``places`` | where a data set lies on this machine, and what to do when it lies nowhere |
| ``fetch`` | the download: several mirrors, verified, never half written |
| ``idx`` | the file format of MNIST and its kin |
| ``images`` | a data set of small grey images as tensors |
| ``cifar`` | CIFAR-100 as tensors |
| ``synthetic`` | stand-in pictures, where there are no files |
| ``digits/`` | the 1,797 handwritten digits that come with rankup |

The digits are part of "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak, UCI Machine
Learning Repository (https://doi.org/10.24432/C50P49), CC BY 4.0.

torch is imported where tensors are made, so that a login node can fetch without it.
"""

from __future__ import annotations

from rankup.workloads.data.images import load_images
from rankup.workloads.data.places import find_or_fetch, is_present, locate

__all__ = ["find_or_fetch", "is_present", "load_images", "locate"]
