"""Alignment with a network whose log-likelihoods equal those of a GMM up to a constant per frame: the
alignments are equal."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from gmm_corpus import DIM, write_corpus
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.decode.decoding.align_dnn import align_shard
from pyasr.feats.inputs import InputOptions, open_features
from pyasr.hmm.align.viterbi import AlignOptions
from pyasr.hmm.model.gmm import AmDiagGmm
from pyasr.hmm.model.gmm_dir import silence_pdfs
from pyasr.hmm.model.model_file import write_model
from pyasr.hmm.model.topology import Topology
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import monophone_tree
from pyasr.hmm.training import align_gmm as gmm_align
from pyasr.io.int_vectors import read_int_vectors
from pyasr.io.text_tables import read_table, write_table
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.nn.networks.acoustic import AcousticModel
from pyasr.nn.networks.feed_forward import DnnOptions, FeedForward

BEAMS = AlignOptions(beam=30.0, retry_beam=100.0)


def network_of(means: np.ndarray, log_priors: torch.Tensor) -> AcousticModel:
    """Logits m'x - m'm / 2 + log prior: relu(x) - relu(-x) = x. Log-likelihoods of unit Gaussians, without
    common terms."""
    network = FeedForward(DnnOptions(hidden_layers=1, hidden_dim=2 * DIM, activation="relu"), DIM, len(means))
    hidden, output = network.affine_layers
    means = torch.from_numpy(means).float()
    with torch.no_grad():
        hidden.weight.copy_(torch.cat([torch.eye(DIM), -torch.eye(DIM)]))
        hidden.bias.zero_()
        output.weight.copy_(torch.cat([means, -means], 1))
        output.bias.copy_(log_priors - (means * means).sum(1) / 2)
    return AcousticModel(network.eval(), torch.zeros(DIM), torch.ones(DIM), log_priors)


@pytest.fixture(scope="module")
def system(tmp_path_factory):
    """(AlignSpec, pdfs of silence, transition model)."""
    path = tmp_path_factory.mktemp("align_dnn")
    data, lang_path = write_corpus(path, num_utterances=12)
    lang, model = LangDir(lang_path), path / "model"
    model.mkdir()
    topology = Topology.read(lang_path / "topo")
    tree = monophone_tree(lang.sets, {phone: topology.num_pdf_classes(phone) for phone in topology.phones})
    trans, rng = TransitionModel.from_tree(topology, tree), np.random.default_rng(3)
    means = 2 * rng.standard_normal((trans.num_pdfs, DIM))
    gmm = AmDiagGmm.from_moments(
        np.arange(trans.num_pdfs + 1), np.ones(trans.num_pdfs), means, np.ones_like(means)
    )
    write_model(model / "final.mdl", trans, gmm)
    tree.write(model / "tree")
    InputOptions().save(model)
    network_of(means, torch.from_numpy(rng.uniform(-5, 0, trans.num_pdfs)).float()).save(model / "final.nnet")
    return (
        gmm_align.AlignSpec(data, lang_path, model, path / "ali", 2, BEAMS, 1.0),
        silence_pdfs(lang, trans),
        trans,
    )


def aligned(spec, align, out):
    out.mkdir()
    for job in (1, 2):
        align(replace(spec, out=out), job)
    report = gmm_align.merge_reports(out, 2)
    return read_int_vectors(out / "ali.1.gz") | read_int_vectors(out / "ali.2.gz"), report


def test_alignments_equal_those_of_gmm(system, tmp_path):
    spec, *_ = system
    expected, _ = aligned(spec, gmm_align.align_shard, tmp_path / "gmm")
    found, report = aligned(spec, align_shard, tmp_path / "dnn")
    assert len(found) == report.num_aligned == 12 and found.keys() == expected.keys()
    assert all(np.array_equal(found[utt], expected[utt]) for utt in found)


def test_many_lost_utterances_end_step_before_output(system, tmp_path):
    spec, *_ = system
    data = Path(shutil.copytree(spec.data, tmp_path / "data"))
    shutil.copy(spec.lang / "phones.txt", spec.model_dir)
    features = read_table(data / "feats.scp")
    write_table(data / "feats.scp", dict(list(features.items())[:9]))
    words = ("--nj", 2, "--beam", 30, data, spec.lang, spec.model_dir, tmp_path / "ali")
    with pytest.raises(
        UserError,
        match="data: 3 of 12 utterances have no alignment: 3: no features .*, or raise --max-missing",
    ):
        run_here("align_dnn.py", *words)
    assert not (tmp_path / "ali").exists()
    run_here("align_dnn.py", "--max-missing", 0.25, *words)
    assert read_table(tmp_path / "ali" / "failed_utterances").keys() == set(list(features)[9:])


def test_word_without_pronunciation_is_named(system, tmp_path):
    spec, *_ = system
    data, lang = (Path(shutil.copytree(path, tmp_path / path.name)) for path in (spec.data, spec.lang))
    with (lang / "words.txt").open("a") as f:
        f.write(f"silent {len(read_table(lang / 'words.txt'))}\n")
    texts = read_table(data / "text")
    utt = min(texts)
    write_table(data / "text", texts | {utt: "silent"})
    _, report = aligned(replace(spec, data=data, lang=lang), align_shard, tmp_path / "ali")
    assert report.failed == {utt: "word 'silent' has no pronunciation in the lexicon"}


def test_silence_boost_increases_silence(system, tmp_path):
    spec, silence, trans = system
    shares = []
    for name, boost in (("as it is", 1.0), ("boosted", 1e30)):
        tids = np.concatenate(
            list(aligned(replace(spec, boost_silence=boost), align_shard, tmp_path / name)[0].values())
        )
        shares.append(np.isin(trans.tid2pdf[tids], silence).mean())
    assert shares[1] > shares[0]


def test_utterance_too_long_for_memory_is_named(system, tmp_path, monkeypatch):
    spec, *_ = system
    reader = open_features(spec.data, spec.model_dir)
    lengths = {utt: len(reader[utt]) for utt in reader.keys}
    longest, compute = max(lengths, key=lengths.get), FeedForward.log_posteriors
    most = sorted(lengths.values())[-2]
    monkeypatch.setattr(
        FeedForward,
        "log_posteriors",
        lambda self, x: compute(self, x) if len(x) <= most else torch.empty(10**15),
    )
    with pytest.raises(
        UserError,
        match=(
            f"^{longest}: memory is not enough for its {lengths[longest]} frames: .*; cut it into shorter "
            "utterances"
        ),
    ):
        aligned(spec, align_shard, tmp_path / "out")


def test_network_of_other_model_is_refused(system, tmp_path):
    spec, *_ = system
    for name in ("final.mdl", "tree", "input.json"):
        (tmp_path / name).symlink_to(spec.model_dir / name)
    network_of(np.zeros((3, DIM)), torch.zeros(3)).save(tmp_path / "final.nnet")
    with pytest.raises(
        UserError, match="final.nnet: the network has 3 outputs, but final.mdl in the same directory has"
    ):
        align_shard(replace(spec, model_dir=tmp_path), 1)
