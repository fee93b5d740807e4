"""Small runs of the programs that egs/amazon_queen/s5/run.sh does not call, in the directory of its finished
run, for benchmarks/measure_rates.py.

The inputs are parts of the recipe's data, its alignments and its graph. Language models of the size of
conversational corpora are estimated from a synthetic text. Outputs are below data/rates and exp/rates. One
process runs at a time, and its CPU time is recorded, so that other load on the machine has little effect. An
interrupted run can be resumed.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from ngram_scale import imitate

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.report.plan.works import WORKS

_USAGE = Path("exp/rates/usage.json")
_UTTERANCES = 400  # of the training data: about 0.28 h
_WORDS, _VOCABULARY = 500_000, 10_000  # of the synthetic text
_RANKS = "--num-ranks 1"
_TRAIN = f"steps/train_dnn.py {_RANKS} --num-epochs 1"
_ALIGNED = "data/lang_prons exp/tri3_ali"
_ON_FMLLR = f"data/rates/fmllr {_ALIGNED}"
_AVERAGING = "--config conf/averaging_dnn.conf"
_TRIGRAM, _LEXICON = "data/local/lm/trigram", "data/local/dict/lexicon.txt"

_DATA = [
    *(
        (
            f"utils/subset_data_dir.py --random {_UTTERANCES} data/train{part} "
            f"data/rates/{part.strip('_') or 'plain'}"
        )
        for part in ("", "_fmllr", "_fbank")
    ),
    *(
        f"utils/subset_data_dir.py --random {num} data/train_fmllr data/rates/fmllr_{num}"
        for num in (40, 150)
    ),
    "utils/subset_data_dir.py --random 100 data/dev_fmllr data/rates/dev",
    *(
        f"utils/copy_data_dir.py --features false data/rates/plain data/rates/plp_{kind}"
        for kind in ("plain", "pitch")
    ),
    "steps/make_plp.py --config conf/plp.conf data/rates/plp_plain",
    "steps/make_plp.py --config conf/plp.conf --add-pitch true data/rates/plp_pitch",
]
_NETWORKS = [
    (
        f"steps/pretrain_dbn.py {_RANKS} --config conf/averaging_dbn.conf --rbm-iter 1 data/rates/fmllr "
        "exp/rates/dbn"
    ),
    f"{_TRAIN} {_AVERAGING} data/rates/fmllr_40 {_ALIGNED} exp/rates/sgd_short",
    f"{_TRAIN} {_AVERAGING} {_ON_FMLLR} exp/rates/sgd",
    f"{_TRAIN} {_AVERAGING} --natural-gradient online data/rates/fmllr_40 {_ALIGNED} exp/rates/ng_short",
    f"{_TRAIN} {_AVERAGING} --natural-gradient online {_ON_FMLLR} exp/rates/ng",
    *(
        f"{_TRAIN} --config conf/{name}.conf --num-epochs 1 {_ON_FMLLR} exp/rates/{name}"
        for name in ("tdnn", "lstm", "blstm")
    ),
    (
        f"{_TRAIN} --config conf/tc_dnn_blstm_dnn.conf --num-epochs 1 data/rates/fmllr_150 {_ALIGNED} "
        "exp/rates/tc_dnn_blstm_dnn"
    ),
    f"{_TRAIN} --config conf/cnn.conf --num-epochs 1 data/rates/fbank {_ALIGNED} exp/rates/cnn",
    (
        f"steps/simulate_parallel.py {_AVERAGING} --num-epochs 1 data/rates/fmllr_40 {_ALIGNED} "
        "exp/rates/simulated"
    ),
]
_SEQUENCES = [
    f"utils/train_lm.py --order 1 data/train/text {_LEXICON} data/rates/lm/unigram",
    "utils/make_grammar.py data/lang_prons data/rates/lm/unigram/lm.arpa.gz data/rates/lang_unigram",
    "utils/make_graph.py data/rates/lang_unigram exp/tri3 exp/rates/graph_unigram",
    "steps/align_dnn.py data/rates/fmllr_150 data/lang_prons exp/dnn exp/rates/dnn_ali",
    "steps/decode.py --lattice-beam 7 --acoustic-scale 0.1 --model-dir exp/dnn exp/rates/graph_unigram "
    "data/rates/fmllr_150 exp/rates/dnn_denlats",
    f"steps/train_smbr.py {_RANKS} --config conf/smbr.conf --num-epochs 1 data/rates/fmllr_150 "
    "data/lang_prons exp/rates/dnn_ali exp/rates/dnn_denlats exp/dnn exp/rates/smbr",
    (
        "steps/build_chain_tree.py --num-leaves 1200 data/rates/plain data/lang_prons exp/tri3_ali "
        "exp/rates/chain_tree"
    ),
    f"steps/train_lfmmi.py {_RANKS} --config conf/chain.conf --num-epochs 1 data/rates/fmllr_150 "
    "exp/tri3_ali exp/rates/chain_tree exp/rates/lfmmi",
    "utils/train_subwords.py --num-units 300 data/train data/rates/units",
    f"utils/prepare_ctc_lang.py data/rates/units {_LEXICON} data/rates/lang_ctc",
    f"utils/make_grammar.py data/rates/lang_ctc {_TRIGRAM}/lm.arpa.gz data/rates/lang_ctc_test",
    "utils/make_ctc_graph.py data/rates/lang_ctc_test exp/rates/ctc_graph",
    f"steps/train_ctc.py {_RANKS} --config conf/ctc.conf --num-epochs 1 data/rates/fmllr_150 "
    "data/rates/units conf/network/ctc.net exp/rates/ctc",
    "steps/decode_ctc.py --search greedy data/rates/dev exp/rates/ctc exp/rates/ctc/decode_greedy",
    (
        f"steps/decode_ctc.py --search prefix --lm {_TRIGRAM}/lm.arpa.gz data/rates/dev exp/rates/ctc "
        "exp/rates/ctc/decode_prefix"
    ),
    (
        "steps/decode_ctc.py --search wfst --graph-dir exp/rates/ctc_graph data/rates/dev exp/rates/ctc "
        "exp/rates/ctc/decode_wfst"
    ),
]
_IVECTORS = [
    (
        "steps/train_ivector_extractor.py --config conf/ivector.conf --model-dir exp/tri2 data/train "
        "exp/rates/ivector"
    ),
    "steps/extract_ivectors.py data/rates/plain exp/rates/ivector exp/rates/ivectors",
    'steps/paste_feats.py --cmvn "none speaker" --deltas "0 2" --vectors '
    "exp/rates/ivectors/ivector_online.scp data/rates/streams "
    "data/rates/fmllr data/rates/fbank",
]
_LANGUAGE = [
    f"utils/train_lm.py --order 4 data/train/text {_LEXICON} data/rates/lm/fourgram",
    "utils/train_lm.py --text-ids false data/rates/text data/rates/words.txt data/rates/lm/large",
    (
        "utils/train_lm.py --order 4 --text-ids false data/rates/text data/rates/words.txt "
        "data/rates/lm/large_4g"
    ),
    "utils/mix_lms.py --weights 0.5,0.5 data/rates/lm/mixed data/rates/lm/large data/rates/lm/large_4g",
    "utils/prune_lm.py --threshold 1e-6 data/rates/lm/large data/rates/lm/pruned",
    "utils/prepare_lang.py data/rates/dict <unk> data/rates/lang_large",
    "utils/make_grammar.py data/rates/lang_large data/rates/lm/pruned/lm.arpa.gz data/rates/lang_large_test",
    "utils/make_graph.py data/rates/lang_large_test exp/tri3 exp/rates/graph_large",
    "utils/subset_data_dir.py --first 40 data/dev_fmllr data/rates/dev_40",
    (
        "steps/decode.py --nj 1 --model-dir exp/dnn exp/rates/graph_large data/rates/dev_40 "
        "exp/rates/decode_large"
    ),
    (
        f"utils/train_lstm_lm.py --num-epochs 3 --ngram {_TRIGRAM} data/train/text data/dev/text {_LEXICON} "
        "exp/rates/lstm_lm"
    ),
    (
        "steps/lm_rescore.py data/lang_test data/rates/lm/fourgram data/dev_fmllr exp/dnn/decode_dev "
        "exp/rates/rescored"
    ),
    (
        "steps/lm_rescore_lstm.py data/lang_test exp/rates/lstm_lm data/dev_fmllr exp/dnn/decode_dev "
        "exp/rates/rescored_lstm"
    ),
    "steps/score.py --decode-mbr true --max-lmwt 30 data/dev_fmllr data/lang_test exp/rates/rescored",
]
_TINY_OPTS = "data/rates/plain_40 data/lang_prons"
_TINY = [  # what each run takes at least; kernels are compiled by it
    "utils/subset_data_dir.py --random 40 data/train data/rates/plain_40",
    "utils/subset_data_dir.py --first 20 data/dev data/rates/dev_20",
    "steps/decode.py --model-dir exp/tri1 exp/tri1/graph data/rates/dev_20 exp/rates/decode_20",
    "steps/decode.py --model-dir exp/dnn exp/tri3/graph data/rates/dev_40 exp/rates/decode_dnn_40",
    "utils/prune_lm.py --lowprobs true data/local/lm/trigram data/rates/lm/lowprobs",
    "steps/decode_fmllr.py --model-dir exp/tri3 exp/tri3/graph data/rates/dev_20 exp/rates/decode_fmllr_20",
    "steps/score.py data/rates/dev_20 data/lang_prons_test exp/rates/decode_20",
    f"steps/train_mono.py --num-gauss 200 {_TINY_OPTS} exp/rates/mono_40",
    f"steps/align_si.py {_TINY_OPTS} exp/rates/mono_40 exp/rates/mono_ali_40",
    (
        f"steps/train_deltas.py --num-leaves 100 --num-gauss 300 {_TINY_OPTS} exp/rates/mono_ali_40 "
        "exp/rates/tri1_40"
    ),
    (
        f"steps/train_lda_mllt.py --num-leaves 100 --num-gauss 300 {_TINY_OPTS} exp/rates/mono_ali_40 "
        "exp/rates/tri2_40"
    ),
    f"steps/train_sat.py --num-leaves 100 --num-gauss 300 {_TINY_OPTS} exp/rates/tri2_40 exp/rates/tri3_40",
    f"steps/align_fmllr.py {_TINY_OPTS} exp/rates/tri3_40 exp/rates/tri3_ali_40",
    "steps/align_dnn.py data/rates/fmllr_40 data/lang_prons exp/dnn exp/rates/dnn_ali_40",
    f"steps/train_lfmmi.py {_RANKS} --config conf/chain.conf --num-epochs 1 data/rates/fmllr_40 exp/tri3_ali "
    "exp/rates/chain_tree exp/rates/lfmmi_40",
    f"steps/train_ctc.py {_RANKS} --config conf/ctc.conf --num-epochs 1 data/rates/fmllr_40 data/rates/units "
    "conf/network/ctc.net exp/rates/ctc_40",
    *(
        (
            f"{_TRAIN} --config conf/{name}.conf --num-epochs 1 data/rates/fmllr_40 {_ALIGNED} "
            f"exp/rates/{name}_40"
        )
        for name in ("tdnn", "lstm")
    ),
    (
        f"steps/pretrain_dbn.py {_RANKS} --config conf/averaging_dbn.conf --rbm-iter 1 data/rates/fmllr_40 "
        "exp/rates/dbn_40"
    ),
]
COMMANDS = [*_DATA, *_LANGUAGE, *_SEQUENCES, *_TINY, *_IVECTORS, *_NETWORKS]


@dataclass(frozen=True)
class Usage:
    """CPU seconds of a program with all of its jobs, and the maximum MB of one of these processes."""

    cpu_s: float
    memory_mb: float


def run_all(recipe: Path) -> None:
    """Run all programs whose outputs are not complete. Raises UserError with the last line of a program that
    fails."""
    make_large_text(recipe)
    for command in COMMANDS:
        words, known = shlex.split(command), usage_of(recipe)
        name = f"{Path(words[0]).stem} {words[-1]}"
        if name in known:
            continue
        known[name] = run(recipe, words)
        (recipe / _USAGE).write_text(
            json.dumps({name: asdict(usage) for name, usage in known.items()}), encoding="utf-8"
        )


def usage_of(recipe: Path) -> dict[str, Usage]:
    """Recorded usage as {name of a program and its last word: usage}."""
    path = recipe / _USAGE
    return (
        {name: Usage(**usage) for name, usage in json.loads(path.read_text(encoding="utf-8")).items()}
        if path.exists()
        else {}
    )


def run(recipe: Path, words: list[str]) -> Usage:
    """Run a program; its usage. Raises UserError if it fails."""
    alone = (
        ["--nj", "1"]
        if words[0].startswith("steps/") and takes_jobs(words[0]) and "--nj" not in words
        else []
    )
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, words[0], *alone, *words[1:]], cwd=recipe, stdout=said, stderr=subprocess.STDOUT
        )
        _, status, usage = os.wait4(process.pid, 0)
        said.seek(0)
        last = (said.read().decode().strip().splitlines() or [""])[-1]
    if status:
        raise UserError(f"{recipe}: '{' '.join(words)}' failed: {last}")
    log.info(f"{words[0]} {words[-1]}: {usage.ru_utime + usage.ru_stime:.1f} CPU s; {last}")
    return Usage(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000)


def takes_jobs(program: str) -> bool:
    """Whether a program has --nj."""
    work = WORKS.get(Path(program).stem)
    return work is not None and work.workers == "nj"


def make_large_text(recipe: Path) -> None:
    """Write a text of half a million words, its word list, and a dictionary that gives each word the
    pronunciation of a recipe's word."""
    root = recipe / "data/rates"
    if (root / "dict/lexicon.txt").exists():
        return
    (root / "dict").mkdir(parents=True, exist_ok=True)
    (recipe / _USAGE).parent.mkdir(parents=True, exist_ok=True)
    imitate(root / "text", _WORDS, _VOCABULARY, 0)
    for path in (recipe / "data/local/dict").glob("*_*.txt"):
        (root / "dict" / path.name).write_bytes(path.read_bytes())
    entries = [
        line.split()
        for line in (recipe / "data/local/dict/lexicon.txt").read_text(encoding="utf-8").splitlines()
    ]
    spoken = [phones for word, *phones in entries if word[0].isalpha() and len(phones) > 2]
    special = [line for line in entries if not line[0][0].isalpha()]
    made = [[f"w{word:05d}", *spoken[word % len(spoken)]] for word in range(_VOCABULARY)]
    (root / "words.txt").write_text("".join(f"{word}\n" for word, *_ in made), encoding="utf-8")
    lines = "".join(f"{' '.join(line)}\n" for line in sorted([*special, *made]))
    part = root / "dict/lexicon.txt.part"
    part.write_text(lines, encoding="utf-8")
    os.replace(part, root / "dict/lexicon.txt")
