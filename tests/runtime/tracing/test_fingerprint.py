"""A fingerprint notices every change that people make to weights, large or small."""

from __future__ import annotations

import pytest
import torch

from rankup.runtime.digest import SMALL, fingerprint
from rankup.snapshots.tensor_checksum import pair

CHANGES = {
    "halved": lambda x: x * 0.5,
    "doubled": lambda x: x * 2,
    "times 1024": lambda x: x * 1024,
    "negated": lambda x: -x,
    "one sign": lambda x: torch.cat([-x[:1], x[1:]]),
    "one bit": lambda x: torch.cat([x[:-1], torch.nextafter(x[-1:], x.new_tensor(9e9))]),
    "swapped": lambda x: x.flip(0),
    "shifted by a row": lambda x: x.roll(1023),
    "added to": lambda x: x + 1,
    "zeroed": lambda x: x * 0,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("number", [10, SMALL, SMALL + 5])
@pytest.mark.parametrize("constant", [False, True])
def test_every_change_is_noticed(dtype: torch.dtype, number: int, constant: bool):
    generator = torch.Generator().manual_seed(0)
    value = torch.rand(number, generator=generator, dtype=dtype) + 0.5
    if constant:
        value = torch.full_like(value, 0.75)
    known = fingerprint({"w": value})
    assert known == fingerprint({"w": value.clone()})
    for name, change in CHANGES.items():
        changed = change(value)
        assert (fingerprint({"w": changed}) == known) == torch.equal(changed, value), name
        assert torch.equal(pair(changed), pair(value)) == torch.equal(changed, value), name


def test_bits_count_and_not_values():
    zeros = torch.zeros(SMALL)
    signed = zeros.clone()
    signed[7] = -0.0
    assert fingerprint(zeros) != fingerprint(signed)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.bfloat16, torch.complex64])
def test_every_dtype_has_one(dtype: torch.dtype):
    value = torch.zeros(SMALL + 3, dtype=dtype)
    other = value.clone()
    other[-1] = 1
    assert fingerprint(value) != fingerprint(other)


@pytest.mark.parametrize("rows", [2, SMALL])
def test_a_tensor_without_values_is_known_by_its_shape(rows: int):
    on_meta = {"weight": torch.empty(rows, 3, device="meta")}
    assert fingerprint(on_meta) == fingerprint({"weight": torch.empty(rows, 3, device="meta")})
    assert fingerprint(on_meta) != fingerprint({"weight": torch.empty(3, rows, device="meta")})
