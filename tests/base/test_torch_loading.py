"""torch without the parts that only its compiler, its exporter and fake tensors use: the same networks and the same numbers."""

import os
import subprocess
import sys
from pathlib import Path

from pyasr.base.torch_loading import _DRIVERS

ROOT = Path(__file__).parents[2]
HAS_GPU = any(map(os.path.exists, _DRIVERS))  # all of torch is imported
NETWORKS = """
import sys
from pathlib import Path
from pyasr.base.torch_loading import defer_parts_of_torch
if sys.argv[1] == "late":
    defer_parts_of_torch()
import torch
from pyasr.nn.layered import LayeredNetwork, read_network
dims = {"blstm": 200, "cnn": 120, "cnn_16": 120, "cnn_512": 120, "ibm": 260}
for path in sorted(Path(sys.argv[2], "egs/amazon_queen/s5/conf/network").glob("*.net")):
    with torch.device("meta"):
        network = LayeredNetwork(read_network(path), dims.get(path.stem, 40), 100)
    print(path.stem, sum(parameter.numel() for parameter in network.parameters()))
LAYERS = ["conv channels=1 filters=4 time=3 bands=3 pool=2 step=2", "tdnn splice=-1..1 dim=8 normalize=true", "tdnnf dim=8 bottleneck-dim=4",
          "blstm cells=4 dropout=0.1", "affine dim=5"]
torch.manual_seed(1)
network = LayeredNetwork(LAYERS, 12, 7)
print(torch.rand(2, generator=torch.Generator().manual_seed(3)).tolist())
y = network(torch.randn(3, network.left + 6 + network.right, 12))
y.logsumexp(-1).mean().backward()
print([parameter.grad.double().sum().item().hex() for parameter in network.parameters()])
print("torch._refs" in sys.modules, torch.export.Dim.__name__)
"""
JOB = "import sys, torch\n\ndef parts(spec, job):\n    print('loaded', 'torch._refs' in sys.modules)\n"


def test_networks_and_gradients_are_the_same():
    late, whole = (_python("-c", NETWORKS, kind, ROOT) for kind in ("late", "whole"))
    assert len(whole) > 20 and late[:-1] == whole[:-1]
    assert (late[-1], whole[-1]) == (f"{HAS_GPU} Dim", "True Dim")


def test_jobs_import_torch_without_them(tmp_path, monkeypatch):
    (tmp_path / "of_a_job.py").write_text(JOB)
    (tmp_path / "x.spec.json").write_text('{"type": "pyasr.base.job_options:JobOptions"}')
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    assert _python("-m", "pyasr.base.job", "of_a_job:parts", tmp_path / "x.spec.json", "1") == [f"loaded {HAS_GPU}"]


def _python(*words) -> list[str]:
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()
