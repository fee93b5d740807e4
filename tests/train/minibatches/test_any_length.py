"""Training on utterances of 1 to 10,000 frames together: all frames are learned, and objectives are
correct."""

import json

import numpy as np
import pytest
import torch
from chain_corpus import LEXICON, spoken, write_alignments, write_features, write_language
from lattice_corpus import NUM_PDFS, SCALE, SILENCES, write_lattice_corpus
from steps_here import run_here
from training_corpora import DIM, make_data

from pyasr.base.errors import UserError
from pyasr.decode.lattices.lattice_io import read_either
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.hmm.model.model_file import read_transitions
from pyasr.io.int_vectors import read_job_archives
from pyasr.io.text_tables import write_table
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.nn.networks.acoustic import AcousticModel, load_scorer
from pyasr.nn.networks.layered import LayeredNetwork
from pyasr.sequence.lattices.hypotheses import hypotheses_of
from pyasr.sequence.lattices.lattice_criteria import CriterionOptions, evaluate
from pyasr.sequence.lattices.tid_classes import TidClasses
from pyasr.sequence.lfmmi.chain import AlignedPhones
from pyasr.train.job import memory_check
from pyasr.train.minibatches.chunks import Packing
from pyasr.train.minibatches.feature_codec import Plain
from pyasr.train.minibatches.frames import FrameStore
from pyasr.train.sgd.carried_states import CarriedCrossEntropy
from pyasr.train.sgd.learner import Learner, LearnerOptions

LENGTHS = {"a-0": 1, "a-1": 2, "a-2": 10_000, "a-3": 3, "a-4": 40}
NUM_FRAMES = sum(LENGTHS.values())
OPTIONS = LearnerOptions(minibatch=1000, device="cpu", precision="float32")
TRAINING = ["--precision", "float32", "--heldout-share", 0, "--lr-scaling", "none", "--num-ranks", 1]


def parameters(out) -> torch.Tensor:
    return torch.cat([value.flatten() for value in load_scorer(out).network.parameters()])


def epochs(out) -> list[dict]:
    return [
        line
        for line in map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
        if "train_objective" in line
    ]


@pytest.mark.parametrize(
    "lines, chunk, carried",
    [
        (["blstm cells=4"], 20, False),
        (["tdnn splice=-2..2 dim=6", "blstm cells=4 recurrent=2", "tdnn splice=-1,1 dim=5"], 21, False),
        (["tdnn splice=-1..1 dim=6", "lstm cells=4 delay=3", "delay frames=2"], 20, True),
    ],
)
def test_chunked_training_on_any_length(tmp_path, lines, chunk, carried):
    """At a rate of 0 the sums over all chunks equal those of the utterances as the model decodes them: cut in
    the same way, or whole if states are carried. At a higher rate, every minibatch changes the parameters."""
    targets = make_data(tmp_path / "data", LENGTHS, NUM_PDFS)
    reader = FeatureReader(tmp_path / "data", InputOptions(cmvn="none"))
    network = LayeredNetwork(lines, DIM, NUM_PDFS, 0 if carried else chunk)
    network.initialise(torch.Generator().manual_seed(1))
    torch.nn.init.normal_(network.output.weight, generator=torch.Generator().manual_seed(2))
    packing = Packing(network.left, network.right, chunk, carried=carried)
    pdfs = [targets.pdfs_of(key) for key in LENGTHS]
    store = packing.store((reader[key] for key in LENGTHS), pdfs, DIM, Plain(torch.float32), False)
    with torch.no_grad():
        posteriors = [network.log_posteriors(torch.from_numpy(reader[key])).double() for key in LENGTHS]
    expected = -sum(float(log_p[range(len(own)), own].sum()) for log_p, own in zip(posteriors, pdfs))
    learner = Learner(network, OPTIONS, criterion=CarriedCrossEntropy() if carried else None)
    sums = sum(learner.step(x, own, 0.0) for x, own in minibatches(store))
    assert sums[0].item() == pytest.approx(expected, rel=1e-6) and sums[2] == NUM_FRAMES
    for x, own in minibatches(store):
        before = learner.flat.master.clone()
        assert learner.step(x, own, 1e-4)[2] > 0 and not torch.equal(learner.flat.master, before)
    assert learner.flat.master.isfinite().all() and not learner.nonfinite_guard.take()[0]


def minibatches(store: FrameStore):
    return store.shuffled(OPTIONS.minibatch, 0, 777, 1)


@pytest.fixture(scope="module")
def lattices(tmp_path_factory):
    return write_lattice_corpus(tmp_path_factory.mktemp("lattices"), LENGTHS)


def blstm_in_place_of_the_network(path, chunk: int) -> None:
    """Replace the network; the transition model and the tree stay."""
    network = LayeredNetwork(["tdnn splice=-1..1 dim=8", "blstm cells=6"], DIM, NUM_PDFS, chunk)
    network.initialise(torch.Generator().manual_seed(1))
    torch.nn.init.normal_(network.output.weight, generator=torch.Generator().manual_seed(2))
    AcousticModel(network, torch.zeros(DIM), torch.ones(DIM), torch.zeros(NUM_PDFS)).save(path / "final.nnet")
    InputOptions(cmvn="none").save(path)


def smbr(path, out, *flags):
    places = [path / name for name in ("data", "lang", "ali", "denlats", "dnn")]
    run_here(
        "train_smbr.py",
        "--acoustic-scale",
        SCALE,
        *TRAINING,
        "--num-epochs",
        1,
        *flags,
        *places,
        out,
        threads=True,
    )


def lattice_objective(path, model_dir) -> float:
    """Objective per frame over the whole corpus, from the files."""
    reader, scorer = FeatureReader(path / "data", InputOptions.load(model_dir)), load_scorer(model_dir)
    references, trans = read_job_archives(path / "ali"), read_transitions(model_dir / "final.mdl")
    classes, options = TidClasses.of(trans, list(SILENCES)), CriterionOptions(acoustic_scale=SCALE)
    lattices = {
        key: lattice for job in (1, 2) for key, lattice in read_either(path / "denlats" / f"lat.{job}.gz")
    }
    assert lattices.keys() == LENGTHS.keys()
    found = [
        evaluate(
            scorer.log_likelihoods(reader[key]),
            hypotheses_of(lattice, trans.num_tids),
            references[key],
            classes,
            options,
        )
        for key, lattice in lattices.items()
    ]
    return sum(one.objective for one in found) / NUM_FRAMES


@pytest.mark.parametrize(
    "chunk", [None, 0, 20], ids=["feed-forward", "BLSTM of whole utterances", "BLSTM of chunks"]
)
def test_lattice_training_on_any_length(lattices, tmp_path, chunk):
    """At a rate of 0 the reported objective is that of the files; at a higher rate the objective rises."""
    start = lattices / "dnn"
    if chunk is not None:
        (tmp_path / "corpus").mkdir()
        for name in ("data", "lang", "ali", "denlats"):
            (tmp_path / "corpus" / name).symlink_to(lattices / name)
        lattices, start = tmp_path / "corpus", tmp_path / "corpus" / "dnn"
        start.mkdir()
        for name in ("final.mdl", "tree"):
            (start / name).symlink_to((tmp_path / "corpus/ali" / name).resolve())
        blstm_in_place_of_the_network(start, chunk)
    smbr(lattices, tmp_path / "still", "--learning-rate", 0)
    (report,), before = epochs(tmp_path / "still"), lattice_objective(lattices, start)
    assert report["frames"] == NUM_FRAMES and report["train_objective"] == pytest.approx(before, abs=1e-5)
    smbr(lattices, tmp_path / "out", "--learning-rate", 1e-4)
    assert lattice_objective(lattices, tmp_path / "out") > before
    assert parameters(tmp_path / "out").isfinite().all()


def test_utterance_too_long_for_memory_is_named(lattices, tmp_path, monkeypatch):
    """Before training starts; the same command trains when memory suffices."""
    report = (
        "data: a-2 has 10000 frames, too many to train on as a whole: it takes about .* MB are free for "
        "each rank; cut it into shorter"
    )
    with monkeypatch.context() as patched, pytest.raises(UserError, match=report):
        patched.setattr(memory_check, "free_bytes", lambda device: 100_000)
        smbr(lattices, tmp_path / "out")
    left = {path.name for path in (tmp_path / "out.tmp").iterdir()}
    assert not (tmp_path / "out").exists() and not left & {
        "final.nnet",
        "checkpoint",
        "metrics.jsonl",
        ".done.json",
    }
    smbr(lattices, tmp_path / "out")
    assert [line["frames"] for line in epochs(tmp_path / "out")] == [NUM_FRAMES]


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """A small language: an utterance of 10,000 frames, one of 40, and short ones of one or two phones, whose
    ends are cut off."""
    path, rng = tmp_path_factory.mktemp("chain"), np.random.default_rng(1)
    write_language(path)
    lang = LangDir(path / "lang")
    words = rng.choice(list(LEXICON), 400)
    long = [
        lang.phones[phone] for phone in f"SIL {' SIL '.join(LEXICON[word] for word in words)} SIL".split()
    ]
    aligned = {
        key: cut(spoken(long if length > 2 else long[:1], rng), length) for key, length in LENGTHS.items()
    }
    write_alignments(path / "ali", lang, aligned)
    write_features(path / "data", aligned, rng)
    write_table(path / "data" / "text", dict.fromkeys(aligned, "not looked at"))
    for factor, strides in ((1, (1, 1)), (3, (1, 3))):
        (path / f"network.{factor}").write_text(
            "".join(f"tdnn splice=-1..1 dim=16 stride={stride}\n" for stride in strides)
        )
        run_here(
            "build_chain_tree.py",
            "--nj",
            1,
            "--num-leaves",
            24,
            "--split-thresh",
            1,
            "--cluster-thresh",
            0,
            "--max-missing",
            0.9,
            "--frame-subsampling-factor",
            factor,
            *(path / name for name in ("data", "lang", "ali", f"tree.{factor}")),
        )
    return path


def cut(aligned: AlignedPhones, num_frames: int) -> AlignedPhones:
    """The phones that begin in the first frames."""
    num = int((aligned.starts[:-1] < num_frames).sum())
    return AlignedPhones(aligned.phones[:num], np.append(aligned.starts[:num], num_frames))


@pytest.mark.parametrize("chunk", [60, 10_002])
@pytest.mark.parametrize("factor", [1, 3])
def test_lfmmi_training_on_any_length(chain, tmp_path, monkeypatch, chunk, factor):
    """LF-MMI of chunks, and of whole utterances, each in a row of 10,002 frames. All outputs are counted, and
    those that two chunks share are counted twice, so no sequence is skipped because its likelihood is not
    finite. The objective rises."""
    learn, counted = Learner.step, []

    def watched(*arguments):
        counted.append(learn(*arguments))
        return counted[-1]

    monkeypatch.setattr(Learner, "step", watched)
    flags = [
        "--cmvn",
        "none",
        "--heldout-by",
        "utterance",
        "--chunk",
        chunk,
        "--minibatch",
        2 * chunk,
        "--num-extra-lm-states",
        20,
    ]
    run_here(
        "train_lfmmi.py",
        *TRAINING,
        *flags,
        "--num-epochs",
        3,
        "--network",
        chain / f"network.{factor}",
        *(chain / name for name in ("data", "ali", f"tree.{factor}")),
        tmp_path / "out",
        threads=True,
    )
    size, outputs = chunk // factor, [-(-length // factor) for length in LENGTHS.values()]
    assert sum(float(sums[2]) for sums in counted) == 3 * sum(
        num if num < size else -(-num // size) * size for num in outputs
    )
    objectives = [line["train_objective"] for line in epochs(tmp_path / "out")]
    assert objectives[0] < objectives[1] < objectives[2] < 0 and parameters(tmp_path / "out").isfinite().all()
