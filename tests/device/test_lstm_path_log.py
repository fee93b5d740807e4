"""Log lines about the implementation that computes LSTM layers on a GPU."""

import pytest

pytest.importorskip("mock_gpu", reason="the mock GPU is not here")

from gpu_trainings import NATURAL, make_corpus, spec_of, trained  # noqa: E402
from mock_gpu import mock_gpu  # noqa: E402

from pyasr.parallel.communication.rank_threads import ThreadComm  # noqa: E402


@pytest.fixture
def log_lines(tmp_path, monkeypatch):
    """Function (device, natural gradient or not) that trains a network with one BLSTM layer; returns log
    lines about LSTM layers."""
    said, corpus = [], make_corpus(tmp_path / "corpus")
    monkeypatch.setattr(ThreadComm, "log", lambda comm, line: said.append(line) if comm.rank == 0 else None)

    def train(device, **learner):
        trained(
            spec_of(
                corpus,
                tmp_path / "out",
                device,
                "blstm cells=8",
                learner=learner,
                schedule=dict(num_epochs=1),
            )
        )
        return [line for line in said if line.startswith("LSTM layers")]

    return train


def test_natural_gradient_uses_loop(log_lines):
    with mock_gpu():
        assert log_lines("cuda", natural_gradient=NATURAL) == [
            "LSTM layers computed by the loop over frames: 2; cuDNN has no natural gradient"
        ]


def test_gpu_without_cudnn_is_logged(log_lines):
    with mock_gpu():
        (line,) = log_lines("cuda", precision="float32")
    assert line.startswith(
        "LSTM layers computed by the loop over frames: 2; cuDNN has no LSTM of float32 in version "
    )


def test_cpu_logs_nothing(log_lines):
    assert log_lines("cpu") == []
