"""Kaldi's option files, and names of its scripts' options: accepted, or refused with advice."""

from pathlib import Path

import pytest
from steps_here import step_of

from pyasr.base.cli.kaldi_names import _NEEDLESS, OURS, advice
from pyasr.base.cli.option_flags import flags_of
from pyasr.base.cli.options import parse
from pyasr.base.errors import UserError
from pyasr.feats.options import MfccOptions

ROOT = Path(__file__).parents[3]
STEPS = sorted(path.name for path in (ROOT / "steps").glob("*.py"))
UTILS = ("prepare_lang.py", "make_graph.py", "validate_data_dir.py")


def parsed(step: str, *words: str, folder: str = "steps"):
    return parse(step_of(step, folder)[1], list(words), extra_flags={"force": ""})[0]


FBANK_CONF = """# as in many of Kaldi's recipes
--window-type=hamming # disable Dans window, use the standard
--use-energy=false    # only fbank outputs
--sample-frequency=16000
--low-freq=64
--high-freq=3800
--dither=1
--num-mel-bins=40
--htk-compat=true
"""
PITCH_CONF = """--sample-frequency=8000
--preemph-coeff=0
--frames-per-chunk=0
--simulate-first-pass-online=false
--recompute-frame=300
--max-frames-latency=20
--nccf-ballast-online=false
--delay=2
"""
ALL = """--round-to-power-of-two=true
--subtract-mean=true
--min-duration=0.1
--debug-mel=true
--output-format=kaldi
--vtln-map=
--vtln-warp=1.0
--verbose=2
--print-args=false
--max-feature-vectors=-1
--allow-downsample=true
--channel=0
"""


def test_kaldi_option_files_are_read(tmp_path):
    for name, content in (("fbank", FBANK_CONF), ("pitch", PITCH_CONF), ("all", ALL)):
        (tmp_path / name).write_text(content)
    words = [f"--config={tmp_path / name}" for name in ("fbank", "all")]
    made = parsed("make_fbank.py", *words, "data/train")
    assert (
        made.fbank.htk_compat
        and made.fbank.utterance.subtract_mean
        and made.archive.min_duration == 0.1
        and made.audio.channel == 0
    )
    both = parsed(
        "make_plp.py",
        f"--config={tmp_path / 'pitch'}",
        f"--config={tmp_path / 'all'}",
        "--debug-mel",
        "--add-pitch",
        "data/train",
    )
    assert both.plp.pitch.process.delay == 2 and both.plp.pitch.add_pitch
    spectrogram = tmp_path / "spectrogram"
    spectrogram.write_text(
        "--output-format=kaldi\n--return-raw-fft=false\n--raw-energy=false\n--energy-floor=1.0\n"
        "--round-to-power-of-two=false\n"
    )
    assert parsed("make_spectrogram.py", f"--config={spectrogram}", "data").spectrogram.energy_floor == 1


@pytest.mark.parametrize(
    "line, reason",
    [
        ("--output-format=htk", "'htk' is not supported: features are written in Kaldi's form"),
        ("--vtln-map=ark:map", "'ark:map' is not supported: write the factors as DATA/spk2warp"),
        ("--vtln-warp=0.9", "'0.9' is not supported: write the factors of speakers as DATA/spk2warp"),
        ("--frames-per-chunk=10", "'10' is not supported: pitch is tracked in whole utterances"),
        (
            "--simulate-first-pass-online=true",
            "'true' is not supported: pitch is tracked in whole utterances",
        ),
        ("--preemph-coeff=0.97", "'0.97' is not supported: pitch is tracked in the unfiltered signal"),
        ("--recompute-frame=many", "'many' is not a whole number"),
        ("--debug-mel=perhaps", "'perhaps' is neither true nor false"),
        ("--htk-compatt=true", "no such option; did you mean --htk-compat?"),
    ],
)
def test_unsupported_kaldi_option_is_refused_with_reason(line, reason, tmp_path):
    (tmp_path / "conf").write_text(f"# Kaldi's\n{line}\n")
    name = line.partition("=")[0]
    for words, where in (
        ([f"--config={tmp_path / 'conf'}"], f"{tmp_path / 'conf'}:2: {name}"),
        ([line], name),
    ):
        with pytest.raises(UserError) as caught:
            parse(MfccOptions, words)
        assert str(caught.value).startswith(f"{where}: ") and reason in str(caught.value)


@pytest.mark.parametrize("step, words, message", [
    ("train_mono.py", ["--totgauss", "1000"], "--totgauss: no such option; pyasr's option is --num-gauss"),
    ("train_lda_mllt.py", ["--splice-opts", "--left-context=3 --right-context=3"],
     "pyasr's option is --splice-left and --splice-right"),
    ("train_deltas.py", ["--cmvn_opts=--norm-vars=true"],
     "--cmvn-opts: no such option; pyasr's option is --cmvn and --norm-vars"),
    ("train_sat.py", ["--stage", "3"],
     "--stage: no such option; it has no effect: the same command resumes where it stopped"),
    ("align_si.py", ["--use-graphs", "true"],
     "it has no effect: training graphs are built when needed; omit it"),
    ("decode.py", ["--acwt", "0.1"], "--acwt: no such option; pyasr's option is --acoustic-scale"),
    ("decode.py", ["--skip-scoring", "true"],
     "it has no effect: decoding does not score, steps/score.py does; omit it"),
    ("make_mfcc.py", ["--mfcc-config", "conf/mfcc.conf"],
     "--mfcc-config: no such option; pyasr's option is --config"),
    ("make_mfcc.py", ["--write-utt2num-frames", "true"],
     "it has no effect: utt2num_frames is always written; omit it"),
    ("train_dnn.py", ["--trainer.optimization.num-jobs-final=4"], "pyasr's option is --num-ranks"),
    ("score.py", ["--word-ins-penalty", "0.5"], "pyasr's option is --word-ins-penalties"),
    ("train_smbr.py", ["--num-iters", "4"], "--num-iters: no such option; pyasr's option is --num-epochs"),
    ("train_mono.py", ["--regular-beam", "10"], "--regular-beam: no such option; pyasr's option is --beam"),
    ("train_dnn.py", ["--use-gpu", "true"], "--use-gpu: no such option; pyasr's option is --device"),
    ("train_sat.py", ["--train-tree", "false"], "it has no effect: a tree is always built; omit it"),
    ("decode_fmllr.py", ["--alignment-model", "x"],
     "final.alimdl and final.mdl of the model directory are used; omit it"),
    ("decode.py", ["--first-beam", "10"],
     "--first-beam: no such option; it has no effect: utterances are decoded once; omit it"),
    ("train_mono.py", ["--global-frames", "200"],
     "it has no effect: only frames of the utterance are used; omit it"),
])  # fmt: skip
def test_kaldi_script_option_gives_advice(step, words, message):
    with pytest.raises(UserError, match=message.replace("(", "\\(")):
        parsed(step, *words, "data/train")


def test_file_for_several_decoders_is_read_by_each(tmp_path):
    """Kaldi's conf/decode.config has the first beam of decode_fmllr.sh and is also read by decode.sh."""
    (tmp_path / "decode.config").write_text(
        "first_beam=10.0 # beam used in the first pass\nbeam=13.0\nlattice_beam=6.0\n"
    )
    words = [f"--config={tmp_path / 'decode.config'}", "graph", "data", "decode"]
    assert parsed("decode.py", *words).decode.beam == 13
    assert parsed("decode_fmllr.py", *words).adapt.first_beam == 10


@pytest.mark.parametrize(
    "word, value", [("t", True), ("1", True), ("F", False), ("0", False), ("True", True)]
)
def test_booleans_are_parsed_like_kaldi(word, value):
    assert parse(MfccOptions, [f"--htk-compat={word}"])[0].htk_compat is value


def test_leaves_and_gaussians_as_positional_arguments_give_advice():
    report = (
        r"expected 4 argument\(s\) .*, got 6: .*; give the first two as --num-leaves 2500 --num-gauss 15000$"
    )
    with pytest.raises(UserError, match=report):
        parsed("train_deltas.py", "2500", "15000", "data/train", "data/lang", "exp/mono_ali", "exp/tri1")
    with pytest.raises(UserError, match="got 6: .*; see --help$"):
        parsed("align_si.py", "2500", "15000", "data/train", "data/lang", "exp/mono_ali", "exp/tri1")


def test_advice_is_silent_if_step_lacks_the_option():
    with pytest.raises(UserError, match="^--totgauss: no such option; see --help$"):
        parsed("compute_cmvn.py", "--totgauss", "9", "data/train")
    assert advice("totgauss", ["nj", "cmd"]) == ""


def test_every_advised_flag_exists():
    """Each pyasr flag belongs to some step, and no Kaldi name is a flag of a step that has the pyasr flag."""
    flags = [{flag.name for flag in flags_of(step_of(name)[1])} | {"config", "force"} for name in STEPS]
    flags += [{flag.name for flag in flags_of(step_of(name, "utils")[1])} for name in UTILS]
    for kaldis, ours in OURS.items():
        for name in ours.split():
            assert any(name in known for known in flags), f"{kaldis}: no step has --{name}"
    for kaldis, (flag, _) in _NEEDLESS.items():
        assert any(flag in known for known in flags), f"{kaldis}: no step has --{flag}"
