"""The data of the built-in workloads: they are found on this machine or fetched with a checksum, and read as tensors.

| file | what |
|---|---|
| ``catalog`` | the known data sets: names, files, checksums, mirrors |
| ``places`` | finds a data set on this machine, or fetches it |
| ``fetch`` | the download: several mirrors, verified, no half-written files |
| ``idx`` | the file format of MNIST and similar data sets |
| ``images`` | a data set of small grey images as tensors |
| ``cifar`` | CIFAR-100 as tensors |
| ``synthetic`` | synthetic images for machines without the files |
| ``digits/`` | the 1,797 handwritten digits that come with rankup |

The digits are part of "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak, UCI Machine
Learning Repository (https://doi.org/10.24432/C50P49), CC BY 4.0.

torch is imported only in functions that make tensors, so that a login node can fetch data without it.
"""

from __future__ import annotations

from rankup.workloads.data.images import load_images
from rankup.workloads.data.places import find_or_fetch, is_present, locate

__all__ = ["find_or_fetch", "is_present", "load_images", "locate"]
