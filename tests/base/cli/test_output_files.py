"""Programs that write one file with a name given by the user replace only their own files without --force."""

import numpy as np
import pytest
from steps_here import run_here
from test_results import make_experiment
from tone_toys import linear_network, save_network

from pyasr.base.cli import step
from pyasr.base.errors import UserError


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Scored systems, and a network."""
    folder = tmp_path_factory.mktemp("inputs")
    save_network(folder, linear_network(np.zeros((3, 4)), np.ones((3, 4)), 4))
    return make_experiment(folder, {"mono": 0.5}), folder


@pytest.fixture(params=["collect_results.py", "export_onnx.py", "spectral_gap.py"])
def write(request, inputs):
    """Function that runs a program that writes to a path."""
    if request.param == "export_onnx.py":
        pytest.importorskip("onnx")
    exp, network = inputs
    words = {
        "collect_results.py": (exp,),
        "export_onnx.py": (network,),
        "spectral_gap.py": ("--ranks", 8, "--draw"),
    }[request.param]
    return lambda path: run_here(request.param, *words, path, folder="utils")


@pytest.mark.parametrize("content", [b"u1 the words of a transcript\n", b"\xff\xfe\x00", b""])
def test_user_file_is_not_replaced_without_force(content, write, tmp_path, monkeypatch):
    path = tmp_path / "text"
    path.write_bytes(content)
    report = (
        f"^{path} exists and is not a .* (written|drawn) by this program; give another name, or --force "
        "to replace it$"
    )
    with pytest.raises(UserError, match=report):
        write(path)
    assert path.read_bytes() == content and len(list(tmp_path.iterdir())) == 1
    monkeypatch.setitem(step._state, "force", True)
    write(path)
    assert path.read_bytes() != content


def test_own_file_is_replaced(write, tmp_path):
    path = tmp_path / "new" / "out"
    write(path)
    whole = path.read_bytes()
    with path.open("ab") as f:
        f.write(b" ")
    write(path)
    assert path.read_bytes() == whole
