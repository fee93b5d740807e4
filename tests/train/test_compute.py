"""The type in which a rank multiplies, on GPUs that this machine need not have."""

import pytest
import torch

from pyasr.base.errors import UserError
from pyasr.train.compute import ComputeOptions
from pyasr.train.training_options import LearnerOptions


class Gpu:
    """What torch tells of one: whether bfloat16 works there, and whether the GPU itself has it, as those from compute capability 8.0 on do."""

    def __init__(self, is_native: bool):
        self.is_native = is_native

    def is_bf16_supported(self, including_emulation: bool = True) -> bool:
        return self.is_native or including_emulation


@pytest.mark.parametrize("precision, is_native, dtype", [
    ("auto", True, torch.bfloat16), ("auto", False, torch.float32), ("bfloat16", False, torch.bfloat16), ("float32", True, torch.float32),
    ("tf32", True, torch.float32),
])  # fmt: skip
def test_bfloat16_is_for_gpus_that_do_not_emulate_it_unless_asked_for(precision, is_native, dtype, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", Gpu(is_native).is_bf16_supported)
    assert ComputeOptions(precision=precision, device="cuda").torch_dtype() == dtype


def test_the_name_of_the_products_for_the_log(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert [ComputeOptions(precision=name, device="cuda").products() for name in ("float32", "tf32", "bfloat16")] == ["float32", "tf32", "bfloat16"]


def test_tf32_is_refused_on_a_cpu(monkeypatch):
    """By the step where the options say so, else by the rank."""
    with pytest.raises(UserError, match="^--precision tf32: only GPUs multiply in it, not the CPU of --device cpu; give --precision float32$"):
        LearnerOptions(precision="tf32", device="cpu").check()
    LearnerOptions(precision="tf32").check()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="^--precision tf32: only GPUs multiply in it, and torch finds none here; give --precision float32$"):
        LearnerOptions(precision="tf32").torch_dtype()
