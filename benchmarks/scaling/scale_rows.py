"""The programs that benchmarks/scaling/scale.py measures, with their limits, and those that it leaves out,
with reasons.

Names in braces are those of `scale_ground.Names`.
"""

from __future__ import annotations

from dataclasses import dataclass

from scale_ground import SEARCH


@dataclass(frozen=True)
class Ladder:
    """Sizes of a program's input. At the first size, the start of the program dominates.

    unit    unit of the amount
    target  amount to which the limits apply
    kind    kind of the corpus
    """

    unit: str
    sizes: tuple[int, ...]
    target: float
    kind: str = ""


@dataclass(frozen=True)
class Row:
    """A program at the sizes of a ladder.

    cpu_s, memory_mb  limits at the ladder's target, or at the amount `at`: CPU seconds with all jobs, MB of
                      the largest process
    again             the output is up to date: the second run is measured
    in_ci             a sample of it runs in the tests
    """

    name: str
    ladder: Ladder
    command: str
    cpu_s: float | None = None
    memory_mb: float | None = None
    at: float | None = None
    again: bool = False
    in_ci: bool = False


_UTTERANCES = (1000, 31_000, 125_000, 500_000, 2_000_000)
TABLES = Ladder("utterances", _UTTERANCES, 6e6, "tables")
SHORT = Ladder("utterances", _UTTERANCES, 6e6, "short")
SPEECH = Ladder("frames", (250, 1000, 3000, 9000), 720e6, "speech")
LATTICES = Ladder("lattices", (250, 1000, 4000, 16_000), 100e3, "speech")
JOBS = Ladder("jobs", (2, 8, 32, 128), 500, "short")
NGRAMS = Ladder("n-grams", (50_000, 500_000, 2_000_000, 8_200_000, 33_000_000), 146e6, "speech")
WORDS = Ladder("words", (1000, 12_500, 50_000, 200_000), 200e3, "speech")

_HALF_KB = 3000.0  # MB at 6 M utterances: 0.5 KB each
_HUNDRED_BYTES = 72_000.0  # MB at 2,000 h: 100 bytes per frame
_FRAMES_OF_JOB = 45e6  # 2,000 h in 16 jobs
_STORE = "--max-store-mb 64"  # the default keeps up to 1000 MB of frames
_OF_RANKS = 16 / 2 * 200.0  # MB for 2 ranks, if 16 ranks may have 200 MB each
_GMM = "--nj 1 --num-iters 3 --max-iter-inc 2 --realign-iters 2"
_SMALL = "--num-leaves 200 --num-gauss 400 {data} {lang}"
_NETWORK = "--hidden-layers 1 --hidden-dim 16 --num-epochs 1 --minibatch 4096"

ROWS = [
    Row(
        "validate_data_dir",
        TABLES,
        "utils/validate_data_dir.py --need-feats true {data}",
        60.0,
        _HALF_KB,
        in_ci=True,
    ),
    Row("validate_kaldi", TABLES, "utils/validate_kaldi.py {data}", None, _HALF_KB, in_ci=True),
    Row("fix_data_dir", TABLES, "utils/fix_data_dir.py {data}", None, _HALF_KB, in_ci=True),
    Row("copy_data_dir", TABLES, "utils/copy_data_dir.py {data} {out}", None, _HALF_KB, in_ci=True),
    Row("combine_data", TABLES, "utils/combine_data.py {out} {half1} {half2}", None, _HALF_KB, in_ci=True),
    Row("perturb_data_dir", TABLES, "utils/perturb_data_dir.py {data} {out}", None, _HALF_KB, in_ci=True),
    Row(
        "reverberate_data_dir",
        TABLES,
        "utils/reverberate_data_dir.py --prefix babble --num-babble 3:4 {data} {out}",
        None,
        _HALF_KB,
        in_ci=True,
    ),
    Row(
        "subset_data_dir --random",
        TABLES,
        "utils/subset_data_dir.py --random {half} {data} {out}",
        None,
        _HALF_KB,
        in_ci=True,
    ),
    Row(
        "subset_data_dir --max-same-text",
        TABLES,
        "utils/subset_data_dir.py --max-same-text 300 {data} {out}",
        None,
        _HALF_KB,
        in_ci=True,
    ),
    Row(
        "subset_data_dir, up to date",
        TABLES,
        "utils/subset_data_dir.py --random {half} {data} {out}",
        2.0,
        _HALF_KB,
        2e6,
        again=True,
    ),
    Row(
        "split_data_dir",
        TABLES,
        "utils/split_data_dir.py {data} {parts}",
        60.0,
        _HALF_KB / 3,
        2e6,
        in_ci=True,
    ),
    Row(
        "import_lhotse",
        TABLES,
        "utils/import_lhotse.py {manifests}/recordings.jsonl {manifests}/supervisions.jsonl {out}",
        None,
        _HALF_KB,
        in_ci=True,
    ),
    Row("train_lm", TABLES, "utils/train_lm.py --min-counts 1,2 {data}/text {large_lexicon} {out}"),
    Row("compute_perplexity", TABLES, "utils/compute_perplexity.py {data}/text {lm}"),
    Row("prepare_dict", TABLES, "utils/prepare_dict.py {data}/text {out}"),
    Row("train_subwords", TABLES, "utils/train_subwords.py --num-units 300 {data} {out}"),
    Row("compute_cmvn", SHORT, "steps/compute_cmvn.py {data}", None, _HALF_KB, in_ci=True),
    Row(
        "make_mfcc, jobs of 4,000",
        SHORT,
        "steps/make_mfcc.py --nj {parts} --sample-frequency 8000 {data}",
        None,
        _HALF_KB,
    ),
    Row("paste_feats", SHORT, "steps/paste_feats.py --nj 1 {out} {data} {data}", None, _HALF_KB),
    Row(
        "make_fmllr_feats",
        SHORT,
        "steps/make_fmllr_feats.py --nj 1 --transform-dir {transforms} {data} {tri3} {out}",
        None,
        _HALF_KB,
    ),
    Row("get_prons", SHORT, "steps/get_prons.py --nj 1 {data} {lang} {ali} {out}", None, _HALF_KB),
    Row("get_train_ctm", SHORT, "steps/get_train_ctm.py {data} {lang} {ali} {out}", None, _HALF_KB),
    Row("copy_ali_dir", SHORT, "steps/copy_ali_dir.py {data} {ali} {out}", None, _HALF_KB),
    Row(
        "align_si, jobs of 4,000",
        SHORT,
        "steps/align_si.py --nj {parts} {data} {lang} {tri1} {out}",
        None,
        _HALF_KB,
    ),
    Row(
        "train_mono, tables",
        SHORT,
        "steps/train_mono.py --nj 2 --num-iters 1 --max-iter-inc 1 --num-gauss 150 {data} {lang} {out}",
    ),
    Row(
        "train_dnn, tables",
        SHORT,
        "steps/train_dnn.py --num-ranks 2 --max-store-mb 64 " + _NETWORK + " {data} {lang} {ali} {out}",
        None,
        _OF_RANKS,
    ),
    Row(
        "train_mono",
        SPEECH,
        "steps/train_mono.py --nj 1 --num-iters 3 --max-iter-inc 2 --num-gauss 200 {data} {lang} {out}",
        None,
        _HUNDRED_BYTES,
    ),
    Row(
        "train_deltas", SPEECH, f"steps/train_deltas.py {_GMM} {_SMALL} {{ali}} {{out}}", None, _HUNDRED_BYTES
    ),
    Row(
        "train_lda_mllt",
        SPEECH,
        f"steps/train_lda_mllt.py {_GMM} --mllt-iters 2 {_SMALL} {{ali}} {{out}}",
        None,
        _HUNDRED_BYTES,
    ),
    Row(
        "train_sat",
        SPEECH,
        f"steps/train_sat.py {_GMM} --fmllr-iters 2 {_SMALL} {{ali}} {{out}}",
        None,
        _HUNDRED_BYTES,
    ),
    Row(
        "align_si",
        SPEECH,
        f"steps/align_si.py --nj 1 {_STORE} {{data}} {{lang}} {{tri1}} {{out}}",
        None,
        1000.0,
        _FRAMES_OF_JOB,
    ),
    Row(
        "align_fmllr",
        SPEECH,
        f"steps/align_fmllr.py --nj 1 {_STORE} {{data}} {{lang}} {{tri3}} {{out}}",
        None,
        1000.0,
        _FRAMES_OF_JOB,
    ),
    Row(
        "build_chain_tree",
        SPEECH,
        "steps/build_chain_tree.py --nj 1 --num-leaves 100 {data} {lang} {ali} {out}",
        None,
        _HUNDRED_BYTES,
    ),
    Row(
        "train_ivector_extractor",
        SPEECH,
        "steps/train_ivector_extractor.py --nj 1 --num-gauss 16 --ubm-iters 4 --ubm-split-iters 2 "
        "--ivector-dim 20 {data} {out}",
        None,
        _HUNDRED_BYTES,
    ),
    Row(
        "train_dnn, in memory",
        SPEECH,
        f"steps/train_dnn.py --num-ranks 1 {_NETWORK} {{data}} {{lang}} {{ali}} {{out}}",
    ),
    Row(
        "train_dnn, streamed",
        SPEECH,
        f"steps/train_dnn.py --num-ranks 1 --max-store-mb 16 {_NETWORK} {{data}} {{lang}} {{ali}} {{out}}",
        None,
        3000.0,
    ),
    Row(
        "pretrain_dbn",
        SPEECH,
        "steps/pretrain_dbn.py --num-ranks 1 --hidden-layers 1 --hidden-dim 16 --minibatch 4096 {data} {out}",
    ),
    Row(
        "align_dnn",
        SPEECH,
        "steps/align_dnn.py --nj 1 {data} {lang} {dnn} {out}",
        None,
        2000.0,
        _FRAMES_OF_JOB,
    ),
    Row(
        "decode",
        SPEECH,
        f"steps/decode.py --nj 1 {SEARCH} --model-dir {{tri1}} {{graph}} {{data}} {{out}}",
        None,
        2000.0,
    ),
    Row(
        "decode_fmllr",
        SPEECH,
        f"steps/decode_fmllr.py --nj 1 {SEARCH} --model-dir {{tri3}} {{graph_tri3}} {{data}} {{out}}",
        None,
        2000.0,
    ),
    Row("find_bad_utts", SPEECH, "steps/find_bad_utts.py --nj 1 {data} {lang} {tri1} {out}", None, 2000.0),
    Row(
        "extract_ivectors", SPEECH, "steps/extract_ivectors.py --nj 1 {data} {extractor} {out}", None, 2000.0
    ),
    Row(
        "split_long_utterances",
        SPEECH,
        "utils/split_long_utterances.py --max-segment-s 3 {data} {ctm}/ctm {out}",
    ),
    Row(
        "train_ctc",
        SPEECH,
        "steps/train_ctc.py --num-ranks 1 --num-epochs 1 {data} {units} {small_network} {out}",
    ),
    Row(
        "train_lfmmi",
        SPEECH,
        "steps/train_lfmmi.py --num-ranks 1 --num-epochs 1 --network {small_network} {data} {ali} "
        "{chain_tree} {out}",
    ),
    Row(
        "train_smbr",
        SPEECH,
        "steps/train_smbr.py --num-ranks 1 --num-epochs 1 {data} {lang} {ali} {decoded} {dnn} {out}",
    ),
    Row(
        "job start, features", JOBS, "steps/paste_feats.py --nj {size} {out} {thousand} {thousand}", 0.3 * 500
    ),
    Row(
        "job start, networks", JOBS, "steps/align_dnn.py --nj {size} {thousand} {lang} {dnn} {out}", 1.0 * 500
    ),
    Row(
        "get_ctm",
        LATTICES,
        "steps/get_ctm.py --nj 1 --lmwt 10 --model-dir {tri1} {data} {lang_test} {decoded} {out}",
    ),
    Row("get_nbest", LATTICES, "steps/get_nbest.py --nj 1 --lmwt 10 {data} {lang_test} {decoded} {out}"),
    Row("oracle_wer", LATTICES, "steps/oracle_wer.py --nj 1 {data} {lang_test} {decoded}"),
    Row(
        "align_lattices",
        LATTICES,
        "steps/align_lattices.py --nj 1 --model-dir {tri1} {data} {lang_test} {decoded} {out}",
    ),
    Row("score", LATTICES, "steps/score.py --nj 1 {data} {lang_test} {decoded}"),
    Row("lm_rescore", LATTICES, "steps/lm_rescore.py --nj 1 {lang_test} {lm} {data} {decoded} {out}"),
    Row(
        "lm_rescore, large model",
        NGRAMS,
        "steps/lm_rescore.py --nj 1 {lang_test} {arpa} {speech} {lattices_of_contents} {out}",
        None,
        5840.0,
    ),
    Row("compute_perplexity, large model", NGRAMS, "utils/compute_perplexity.py {speech}/text {arpa}"),
    Row("prune_lm", NGRAMS, "utils/prune_lm.py --threshold 1e-7 {arpa} {out}"),
    Row("mix_lms", NGRAMS, "utils/mix_lms.py --weights 0.5,0.5 {out} {arpa} {lm}"),
    Row("prepare_lang", WORDS, "utils/prepare_lang.py {large}/dict <unk> {out}"),
    Row("make_grammar", WORDS, "utils/make_grammar.py {large_lang} {large}/lm.arpa.gz {out}"),
    Row("make_graph", WORDS, "utils/make_graph.py {large_lang_test} {tri1} {out}"),
    Row(
        "decode, large graph",
        WORDS,
        f"steps/decode.py --nj 1 {SEARCH} --model-dir {{tri1}} {{large_graph}} {{few}} {{out}}",
    ),
]

_AUDIO = "reads audio, which these corpora do not have"
_NETWORK_ALONE = "reads a network, no corpus"
_ANSWER = "reads the results of a few decodings and trainings"
_AS_MFCC = "as make_mfcc, with other features"
UNMEASURED = {  # program: why it has no row
    **dict.fromkeys(("compute_vtln", "segment_data_dir", "prepare_own_data", "transcribe"), _AUDIO),
    **dict.fromkeys(("make_fbank", "make_plp", "make_spectrogram"), _AS_MFCC),
    **dict.fromkeys(("export_kaldi", "export_onnx", "pack_model"), _NETWORK_ALONE),
    **dict.fromkeys(("collect_results", "compare_published", "show_progress"), _ANSWER),
    "simulate_rirs": "simulates rooms",
    "new_recipe": "reads the corpus as prepare_own_data does",
    "decode_ctc": "as decode, without a graph",
    "lm_rescore_lstm": "as lm_rescore, with a network for a model",
    "simulate_parallel": "as train_dnn, with all ranks in one process",
    "train_lstm_lm": "keeps its text as integers and trains for hours",
    "make_ctc_graph": "as make_graph, without context",
    "prepare_ctc_lang": "as prepare_lang",
    "validate_lang": "reads a lang directory, as make_graph does",
    "dict_dir_add_pronprobs": "reads counts by words",
    "score_stm": "reads a test set",
    "build_environment": "installs libraries",
    "check_install": "checks the machine",
    "plan_recipe": "reads the calls of a recipe",
    "spectral_gap": "computes with matrices of the size of the number of ranks",
    "supervise": "runs another program",
}
