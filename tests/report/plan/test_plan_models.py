"""Properties of models, features and language models in plans, and the arithmetic of networks by hand."""

import gzip
import json

import pytest

from pyasr.base.errors import UserError
from pyasr.hmm.shards import shard_store
from pyasr.report.plan import works
from pyasr.report.plan.derived_dirs import Speech
from pyasr.report.plan.disk import disk_below, num_ngrams
from pyasr.report.plan.estimate import make_plan
from pyasr.report.plan.gpu import gpu_seconds
from pyasr.report.plan.networks import NetworkSize, pretraining_gflop
from pyasr.report.plan.planned_calls import parse_call
from pyasr.report.plan.planned_data import Disk, PlannedCorpus
from pyasr.report.plan.rates import Rate, Rates

FRAMES = works.FRAMES_PER_HOUR


def corpus_after(*commands: str, **disk) -> PlannedCorpus:
    """A corpus of 2 hours, after these calls."""
    corpus = PlannedCorpus(Disk(lambda path: {"data/train": Speech(2.0, 1000)}.get(path), **disk))
    for command in commands:
        corpus.note(call_of(command))
    return corpus


def call_of(command: str):
    program, *words = command.split()
    return parse_call(f"steps/{program}.py", words)


@pytest.mark.parametrize("commands, path, columns", [
    (["make_mfcc --num-ceps 40 data/train"], "data/train", 40),
    (["make_plp --add-pitch true data/train"], "data/train", 16),
    (["make_plp --add-pitch true --add-raw-log-pitch true data/train"], "data/train", 17),
    (["make_fbank data/train"], "data/train", 23),
    (["make_fbank --use-energy true --nj 4 data/train"], "data/train", 24),
    (["make_spectrogram --sample-frequency 8000 data/train"], "data/train", 129),
    (["train_lda_mllt --dim 30 data/train lang ali tri2", "train_sat data/train lang tri2 tri3",
      "align_fmllr data/train lang tri3 tri3_ali", "make_fmllr_feats data/train tri3_ali data/train_fmllr"],
     "data/train_fmllr", 30),
    (["make_fbank --num-mel-bins 40 data/train",
      "train_ivector_extractor --ivector-dim 100 data/train ivector",
      "extract_ivectors data/train ivector ivectors", "copy_data_dir data/train data/other",
      "paste_feats --deltas '0 2' --vectors ivectors/ivector_online.scp data/streams data/other data/train"],
     "data/streams", 40 + 120 + 100),
    ([], "data/train", 40),
])  # fmt: skip
def test_columns_of_features(commands, path, columns):
    corpus = corpus_after()
    for command in commands:
        words = command.replace("'0 2'", "0_2").split()
        corpus.note(parse_call(f"steps/{words[0]}.py", [word.replace("0_2", "0 2") for word in words[1:]]))
    assert corpus.columns_of(path) == columns


@pytest.mark.parametrize(
    "commands, path, leaves",
    [
        (["train_mono data/train lang mono"], "mono", 130),
        (
            [
                "train_deltas --num-leaves 77 data/train lang ali tri1",
                "align_si data/train lang tri1 tri1_ali",
            ],
            "tri1_ali",
            77,
        ),
        (
            ["build_chain_tree --num-leaves 99 data/train lang ali tree", "make_graph lang tree graph"],
            "graph",
            99,
        ),
        (["train_subwords --num-units 300 data/train units"], "units", 300),
    ],
)
def test_leaves_of_models(commands, path, leaves):
    assert corpus_after(*commands).model_of(path).leaves == leaves


def test_feed_forward_networks_equal_hand_calculation():
    """11 frames of 40 columns; p-norm layers have a group of rows per unit; outputs are mixed up to 200."""
    before = ["train_deltas --num-leaves 100 data/train lang ali tri"]
    network = (
        corpus_after(*before, "train_dnn --hidden-layers 2 --hidden-dim 10 data/train lang tri dnn")
        .model_of("dnn")
        .network
    )
    assert network == NetworkSize(440 * 10 + 10 * 10 + 100 * 10, 440 * 10 + 10 * 10 + 100 * 10, maps=3)
    pnorm = (
        "train_dnn --activation pnorm --pnorm-group 5 --hidden-layers 2 --hidden-dim 10 --mix-up 200 "
        "data/train lang tri dnn"
    )
    assert corpus_after(*before, pnorm).model_of("dnn").network.products == 440 * 50 + 10 * 50 + 200 * 10
    assert (
        corpus_after(*before, pnorm, "train_smbr data/train lang ali lats dnn smbr")
        .model_of("smbr")
        .network.products
        == 440 * 50 + 500 + 2000
    )


def test_configured_networks_are_sized_with_their_input():
    asked = []
    corpus = corpus_after(
        "make_fbank --num-mel-bins 40 data/train",
        "train_deltas --num-leaves 100 data/train lang ali tri",
        network=lambda *shape: asked.append(shape) or NetworkSize(5.0, 7.0, "recurrent", 3, 60),
    )
    corpus.note(call_of("train_dnn --network a.net --deltas 2 --chunk 21 data/train lang tri dnn"))
    corpus.note(call_of("train_lfmmi --network b.net data/train ali tri lfmmi"))
    corpus.note(call_of("train_ctc data/train tri c.net ctc"))
    assert asked == [("a.net", 120, 100, 21), ("b.net", 40, 100, 150), ("c.net", 40, 100, 0)]
    call = call_of("train_dnn --network a.net --natural-gradient online data/train lang tri dnn")
    assert works.key_of(call, corpus) == "train_dnn recurrent, natural gradient"
    assert works.network_training(call, corpus) == 6 * 7 * 2 * FRAMES * 10 / 1e9


def test_dbn_equals_hand_calculation():
    """Each RBM gets the outputs of those below it; the first one is trained for twice as many epochs."""
    call = call_of("pretrain_dbn --hidden-layers 3 --hidden-dim 10 --rbm-iter 2 data/train dbn")
    first, other = 440 * 10, 100
    flops = 4 * 10 * first + 2 * (10 * other + 2 * first) + 2 * (10 * other + 2 * (first + other))
    assert pretraining_gflop(call, 40, 50) == pytest.approx(flops * 50 / 1e9)


def test_network_scores_are_part_of_decoding():
    rates = Rates(
        "m",
        "2026-01-02",
        {
            "decode": Rate("hour", (0.0, 100.0), (0.0, 0.0), (0.0, 0.0), 1),
            "train_dnn feed-forward": Rate("Gflop", (5.0, 0.01), (0.0, 0.0), (0.0, 0.0), 1),
        },
    )
    corpus = corpus_after(
        "train_deltas --num-leaves 100 data/train lang ali tri",
        "train_dnn --hidden-layers 2 --hidden-dim 10 data/train lang tri dnn",
    )
    plan = make_plan([call_of("decode --model-dir dnn tri/graph data/train dnn/decode")], corpus, rates)
    assert plan.total.core_s == pytest.approx(200 + 0.01 * 2 * (4400 + 100 + 1000) * 2 * FRAMES / 1e9)
    assert make_plan([call_of("decode tri/graph data/train tri/decode")], corpus, rates).total.core_s == 200


def test_block_memory_option_bounds_memory():
    rates = Rates(
        "m", "2026-01-02", {"pretrain_dbn": Rate("Gflop", (0.0, 1.0), (0.0, 0.0), (300.0, 200.0), 1)}
    )
    for flags, memory_mb in (("", 300 + 200), ("--max-store-mb 50", 350), ("--max-store-mb 900", 500)):
        assert (
            make_plan(
                [call_of(f"pretrain_dbn {flags} data/train dbn")], corpus_after(), rates
            ).total.memory_mb
            == memory_mb
        )


@pytest.mark.parametrize("num_jobs", [100, 2, 1])
@pytest.mark.parametrize("program", ["train_sat", "align_si"])
def test_gmm_memory_equals_reservation_of_programs(program, num_jobs):
    """For 2, 100 and 200 hours: all data, 84 bytes per frame, and 1000 MB in addition to the alignment."""
    rates = Rates("m", "2026-01-02", {program: Rate("hour", (0.0, 1.0), (0.0, 0.0), (300.0, 60.0), 1)})
    corpus = PlannedCorpus(
        Disk(lambda path: {"data/train": Speech(2.0 if num_jobs == 100 else 40.0, 1000)}.get(path))
    )
    call = call_of(f"{program} --nj {num_jobs} data/train lang ali out")
    hours = corpus.hours_of("data/train") / num_jobs
    reserved = 4 * FRAMES * hours + shard_store._wanted(int(FRAMES * hours), 0, shard_store.MemoryOptions())
    assert make_plan([call], corpus, rates).total.memory_mb == pytest.approx(
        300 + min(60 * hours, reserved / 1e6)
    )
    assert (
        make_plan(
            [call_of(f"{program} --nj 1 --max-store-mb 90 data/train lang ali out")], corpus, rates
        ).total.memory_mb
        == 390
    )


def test_gpu_seconds_equal_hand_calculation():
    """2 epochs of 720,000 frames in minibatches of 100: products, and launches for 4 matrices and 60
    steps."""
    gpu = {
        "gflop_per_s": 1000.0,
        "s_per_launch": 1e-5,
        "launches": {"SGD": 20, "natural gradient": 150, "recurrent step": 40, "train_lfmmi": 9},
    }
    corpus = corpus_after(
        "train_dnn --network x data/train lang ali dnn",
        network=lambda *_: NetworkSize(5.0, 7e5, "recurrent", 4, 60),
    )
    for flags, launches in (("", 4 * 20), ("--natural-gradient online", 4 * 150)):
        call = call_of(f"train_dnn {flags} --num-epochs 2 --minibatch 100 data/train lang ali dnn")
        wanted = 6 * 7e5 * 4 * FRAMES / 1e9 / 1000 + 4 * FRAMES / 100 * (launches + 60 * 40) * 1e-5
        assert gpu_seconds(call, corpus, gpu) == pytest.approx(wanted)
    assert (
        gpu_seconds(call_of("train_ctc data/train units net dnn"), corpus, gpu) is None
        and gpu_seconds(call, corpus, {}) is None
    )


def test_language_models_scale_with_words_and_options():
    lm = "data/train/text lexicon.txt lm"
    words = 20_000
    assert corpus_after(f"train_lm {lm}").ngrams_of("lm") == pytest.approx(1.1 * words)
    assert corpus_after(f"train_lm --order 4 --min-counts 1,2 {lm}").ngrams_of("lm") == pytest.approx(
        1.8 * 0.22 * words
    )
    chain = [
        f"train_lm {lm}",
        "prune_lm --threshold 1e-8 lm small",
        "make_grammar lang small/lm.arpa.gz lang_test",
        "make_graph lang_test tri graph",
    ]
    assert corpus_after(*chain).ngrams_of("graph") == pytest.approx(0.25 * 1.1 * words)
    assert corpus_after(f"train_lm {lm}", "mix_lms mixed lm lm").ngrams_of("mixed") == pytest.approx(
        2.2 * words
    )
    assert corpus_after("get_lms corpus data/lm").ngrams_of("data/lm/tglarge/lm.arpa.gz") == 84e6


def test_existing_outputs_are_read(tmp_path):
    """The number of n-grams in the head of a file, leaves and columns of models from their done-files, words
    of a text."""
    for name, command in (
        ("exp/tri", "steps/train_lda_mllt.py --num-leaves 55 --dim 33 data/train lang ali exp/tri"),
        ("exp/ali", "steps/align_fmllr.py data/train lang exp/tri exp/ali"),
    ):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / ".done.json").write_text(json.dumps({"command": command}))
    (tmp_path / "lm").mkdir()
    with gzip.open(tmp_path / "lm/lm.arpa.gz", "wt") as file:
        file.write("\\data\\\nngram 1=10\nngram 2 = 200\n\n\\1-grams:\n")
    (tmp_path / "text").write_text("u word word\n" * 50)
    corpus = PlannedCorpus(disk_below(tmp_path))
    assert (corpus.model_of("exp/ali").leaves, corpus.model_of("exp/ali").columns) == (55, 33)
    assert corpus.ngrams_of("lm/lm.arpa.gz") == 210 and num_ngrams(tmp_path / "nothing") is None
    assert corpus.words_of("text") == pytest.approx(50 * 12 / 5.5)


def test_directories_of_earlier_scripts_have_length_of_origin():
    corpus = corpus_after()
    assert (
        corpus.hours_of("data/train_sp_fmllr") == 2
        and "its duration is assumed to be that of data/train" in corpus.assumed["data/train_sp_fmllr"]
    )
    with pytest.raises(UserError, match="data/dev_fmllr does not exist"):
        corpus.hours_of("data/dev_fmllr")


def test_call_without_required_arguments_is_named():
    with pytest.raises(
        UserError,
        match=(
            r"steps/train_dnn.py data/train: a word or flag is missing \(.*\); see steps/train_dnn.py "
            r"--help"
        ),
    ):
        make_plan([call_of("train_dnn data/train")], corpus_after(), Rates("m", "2026-01-02", {}))


def test_unmeasured_rates_come_from_most_similar_program():
    """The number of common words decides, then the higher cost."""

    def rate(core_s: float) -> Rate:
        return Rate("", (0.0, core_s), (0.0, 0.0), (0.0, 0.0), 1)

    rates = Rates(
        "m",
        "2026-01-02",
        {
            "train_dnn feed-forward": rate(1),
            "train_dnn recurrent, natural gradient": rate(3),
            "train_dnn time delays, natural gradient": rate(2),
            "make_mfcc": rate(1),
            "make_mfcc 40": rate(2),
        },
    )
    assert rates.nearest("train_dnn recurrent") == "train_dnn recurrent, natural gradient"
    assert rates.nearest("train_dnn feed-forward, natural gradient") == "train_dnn feed-forward"
    assert rates.nearest("make_mfcc 40 --compress") == "make_mfcc 40" and rates.nearest("make_plp") is None
    assert rates.nearest("make_mfcc") == "make_mfcc"
