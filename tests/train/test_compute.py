"""The number type of a rank's products, also on GPUs that this machine does not have."""

import pytest
import torch

from pyasr.base.errors import UserError
from pyasr.train.compute import ComputeOptions
from pyasr.train.training_options import LearnerOptions


class Gpu:
    """A GPU as torch reports it: bfloat16 works, and `is_native` if the GPU itself supports it, from compute
    capability 8.0 on."""

    def __init__(self, is_native: bool):
        self.is_native = is_native

    def is_bf16_supported(self, including_emulation: bool = True) -> bool:
        return self.is_native or including_emulation


@pytest.mark.parametrize(
    "precision, is_native, dtype",
    [
        ("auto", True, torch.bfloat16),
        ("auto", False, torch.float32),
        ("bfloat16", False, torch.bfloat16),
        ("float32", True, torch.float32),
        ("tf32", True, torch.float32),
    ],
)
def test_bfloat16_is_default_on_gpus_with_support(precision, is_native, dtype, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", Gpu(is_native).is_bf16_supported)
    assert ComputeOptions(precision=precision, device="cuda").torch_dtype() == dtype


def test_type_of_products_is_named_in_log(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert [
        ComputeOptions(precision=name, device="cuda").products() for name in ("float32", "tf32", "bfloat16")
    ] == ["float32", "tf32", "bfloat16"]


def test_tf32_is_refused_on_cpu(monkeypatch):
    """By the step if the options suffice to know it, else by the rank."""
    with pytest.raises(
        UserError, match="^--precision tf32 needs a GPU, but --device is cpu; give --precision float32$"
    ):
        LearnerOptions(precision="tf32", device="cpu").check()
    LearnerOptions(precision="tf32").check()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(
        UserError, match="^--precision tf32 needs a GPU, but torch finds none here; give --precision float32$"
    ):
        LearnerOptions(precision="tf32").torch_dtype()
