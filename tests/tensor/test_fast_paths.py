"""Every fast path equals its plain form, or is not taken, on this processor and on others; the list of fast
paths is complete."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fast_paths import FAST_PATHS
from processors import NAMES, environment, has_avx512

from pyasr.tensor import processor, products
from pyasr.train.compute import ComputeOptions

LIBRARY = Path(__file__).parents[2] / "pyasr"
MARKS = (
    r"ops\.mkldnn|to_mkldnn|fastmath=|error_model=|cudnn_is_acceptable|bfloat16_kernels import|[!=]= "
    r"torch\.(bfloat16|float16|float32)"
)
TESTED_ELSEWHERE = {
    "feats/compute/spectrum_kernels.py": "has no other form: tests/feats/compute/test_spectrum.py",
    "nn/layers/preconditioned_layers.py": "widens float16: tests/nn/layers/test_preconditioned_layers.py",
    "nn/layers/lstm.py": "asks cuDNN on a GPU: tests/nn/layers/test_lstm.py",
    "parallel/communication/host_copy.py": "copies between devices: tests/device/test_copies.py",
    "parallel/communication/ring.py": "refuses other types: tests/parallel/communication/test_ring.py",
    "train/minibatches/frames.py": "narrows what it keeps: tests/train/minibatches/test_frames.py",
}


@pytest.fixture(scope="module", params=NAMES)
def result_on_processor(request: pytest.FixtureRequest) -> tuple[str, dict]:
    """(name of a processor, output of fast_paths.py with the instructions of this processor)."""
    name, program = request.param, Path(__file__).with_name("fast_paths.py")
    done = subprocess.run(
        [sys.executable, str(program)], env=environment(name), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return name, json.loads(done.stdout)


@pytest.mark.parametrize("path", FAST_PATHS)
def test_fast_path_equals_plain_form(result_on_processor, path):
    assert result_on_processor[1]["errors"][path] <= FAST_PATHS[path].bound


def test_fast_paths_need_instructions_of_processor(result_on_processor):
    name, choices = result_on_processor[0], result_on_processor[1]["choices"]
    if name in ("avx2", "sse"):
        assert not any(choices.values())
    elif has_avx512():
        assert choices["registers of 512 bits"] and choices["tanh by oneDNN"]
        assert choices["products by oneDNN"] == processor.is_from_amd()
    if name == "avx512":
        assert not choices["bfloat16 by default"]


def test_list_of_fast_paths_is_complete():
    """A file that compiles with reassociation, or requests a library or a type, is in the list, or among the
    few with another test."""
    marked = {
        str(path.relative_to(LIBRARY))
        for path in LIBRARY.rglob("*.py")
        if re.search(MARKS, path.read_text(encoding="utf-8"))
    }
    listed = {path.home for path in FAST_PATHS.values()}
    assert marked - listed - set(TESTED_ELSEWHERE) == set() and listed | set(TESTED_ELSEWHERE) <= marked


@pytest.mark.parametrize(
    "variables, bfloat16, registers",
    [
        ({}, True, True),
        ({"ONEDNN_MAX_CPU_ISA": "ALL"}, True, True),
        ({"ONEDNN_MAX_CPU_ISA": "avx512_core_vnni"}, False, True),
        ({"ONEDNN_MAX_CPU_ISA": "AVX2"}, False, False),
        ({"DNNL_MAX_CPU_ISA": "avx2"}, False, False),
        ({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_AMX", "DNNL_MAX_CPU_ISA": "AVX2"}, True, True),
    ],
)
def test_limits_of_onednn_are_respected(variables, bfloat16, registers, monkeypatch):
    """On a processor with all instructions."""
    for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    assert (processor.multiplies_bfloat16(), processor.has_avx512()) == (bfloat16, registers)
    assert ComputeOptions(device="cpu").torch_dtype() == (torch.bfloat16 if bfloat16 else torch.float32)


def test_unknown_processor_takes_no_fast_path(monkeypatch):
    """For example without /proc, or if torch lacks a library or a function."""

    def missing(*arguments, **keywords):
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", missing)
    assert not processor.is_from_amd.__wrapped__()
    monkeypatch.undo()
    monkeypatch.setattr(products, "is_from_amd", lambda: True)
    monkeypatch.setattr(products, "has_avx512", lambda: True)
    monkeypatch.setattr(
        products, "_by_onednn", lambda *operands: torch.ops.mkldnn._no_such_function(*operands)
    )
    assert not products.prefers_onednn.__wrapped__()
    monkeypatch.setattr(products, "_by_onednn", lambda x, weight, bias: torch.zeros(3, 5))
    assert not products.prefers_onednn.__wrapped__()
