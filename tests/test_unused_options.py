"""Options without effect for the chosen network, schedule or criterion are refused by name, even with their
default values."""

import pytest
from steps_here import step_of

from pyasr.base.cli.option_flags import flags_of, positionals_of
from pyasr.base.cli.option_uses import usage_text
from pyasr.base.cli.options import HelpRequested, parse
from pyasr.base.errors import UserError


def flag(option):
    return f"--{option.replace('_', '-')}"


TRAINING = ("train_dnn.py", "train_lfmmi.py", "train_ctc.py", "train_smbr.py")
ON_INPUT = (
    "train_dnn.py",
    "train_lfmmi.py",
    "train_ctc.py",
    "train_mono.py",
    "train_lda_mllt.py",
    "train_ivector_extractor.py",
)
EXTRACTION = ("make_mfcc.py", "make_fbank.py", "make_plp.py")
SCHEDULES = {
    "exponential": ("final_factor", "constant_epochs"),
    "exponential-frames": ("final_factor", "constant_epochs"),
    "step": ("step_epochs", "step_frames", "least_rate", "halving_factor"),
    "warm-up": ("warm_up_epochs", "warm_up_factor"),
    "newbob": ("start_halving_gain", "end_halving_gain", "halving_factor"),
    "newbob-accuracy": ("halving_factor",),
}
FLAGS = {flag(option) for options in SCHEDULES.values() for option in options}
ONLINE = "--ng-rank-in --ng-rank-out --ng-num-samples-history --ng-num-minibatches-history --ng-update-period"
REPLACED_BY_FILE = (
    "--hidden-layers --hidden-dim --activation --pnorm-group --normalize --dropout --splice-left "
    "--splice-right"
)
MIXED_UP = "--mix-up-power --mix-up-min-count --mix-up-stddev"
UNUSED_WITH_FILE = (
    "--mix-up --layer-period-frames --fix-period-frames --shrink-period-frames "
    "--presoftmax-power --teacher --dbn"
)
COMBINED = "--combine-models --combine-period-frames --combine-start --combine-iterations --sample-frames"
PITCH = (
    "--min-f0 --max-f0 --resample-frequency --nccf-ballast --pitch-scale --delta-window "
    "--add-raw-log-pitch --add-pov-feature"
)

CASES = [
    (TRAINING, "", ONLINE + " --ng-alpha"),
    (TRAINING, "--natural-gradient simple", ONLINE),
    (TRAINING, "--natural-gradient online --ng-num-minibatches-history 4", "--ng-num-samples-history"),
    *(
        (TRAINING, f"--schedule {name}", " ".join(sorted(FLAGS - {flag(option) for option in of_it})))
        for name, of_it in SCHEDULES.items()
    ),
    (ON_INPUT, "--cmvn speaker", "--cmn-window --min-cmn-window --center"),
    (ON_INPUT, "--cmvn none", "--norm-vars"),
    (ON_INPUT, "--cmvn sliding --center", "--min-cmn-window"),
    (
        ("train_dnn.py",),
        "",
        "--pnorm-group --chunk --teacher-data --teacher-mass --within-class-factor --max-singular-value "
        f"--shrink-saturation-threshold --shrink-value-period-frames {MIXED_UP} {COMBINED}",
    ),
    (("train_lfmmi.py",), "", COMBINED),
    (("train_dnn.py", "train_lfmmi.py"), "--combine average", "--combine-start --combine-iterations"),
    (("train_dnn.py",), "--activation pnorm", "--normalize"),
    (("train_dnn.py",), "--network x.net", f"{REPLACED_BY_FILE} {UNUSED_WITH_FILE} --input-transform"),
    (("train_dnn.py", "simulate_parallel.py"), "", "--carry-state --fix-period-frames --shrink-value"),
    (("train_dnn.py",), "--network x.net --carry-state", "--combine --shrink-value"),
    (("train_dnn.py",), "--teacher x", "--vtlp --input-transform --combine --shrink-period-frames"),
    (("train_dnn.py",), "--teacher x --activation tanh", "--fix-period-frames --shrink-value"),
    (("train_dnn.py",), "--dbn x", "--layer-period-frames --input-transform"),
    (("train_lfmmi.py",), "", "--splice-left --splice-right --carry-state"),
    (("train_ctc.py",), "", "--splice-left --splice-right"),
    (("train_smbr.py",), "", "--boost --drop-frames"),
    (("train_smbr.py",), "--criterion mpfe", "--boost --drop-frames"),
    (("train_smbr.py",), "--criterion mmi", "--one-silence-class"),
    (
        ("simulate_parallel.py",),
        "",
        "--host-bandwidth-mb --pnorm-group --topology --checkpoint-minutes --stop-at-divergence",
    ),
    (("pretrain_dbn.py",), "--parallel d1d", "--period-frames --outer-rate --topology"),
    (EXTRACTION, "", f"{PITCH} --seed"),
    (("paste_feats.py",), "", "--vector-period"),
    (("utils/reverberate_data_dir.py",), "--utt-suffix x", "--prefix"),
    (
        ("decode_ctc.py",),
        "--search greedy",
        "--lm --num-prefixes --lm-weight --graph-dir --beam --acoustic-scale --determinize-mb",
    ),
    (("decode_ctc.py",), "", "--graph-dir --max-active --determinize --lm-weight --oov-cost --letter-cost"),
    (("decode_ctc.py",), "--search wfst", "--lm --unit-beam --num-best --letter-cost"),
    (("decode.py", "decode_fmllr.py"), "--determinize false", "--determinize-mb"),
    (("decode_fmllr.py",), "--si-dir x", "--first-beam --first-max-active"),
    (("decode_fmllr.py", "align_fmllr.py", "train_sat.py"), "--fmllr-update-type diag", "--fmllr-num-iters"),
    (("decode_fmllr.py", "align_fmllr.py", "train_sat.py"), "--fmllr-update-type none", "--fmllr-min-count"),
    (("decode_fmllr.py", "train_sat.py"), "--fmllr-update-type none", "--silence-weight"),
    (("score.py",), "", "--posterior-scale"),
    (("train_ivector_extractor.py",), "--model-dir x", "--deltas --splice-left --splice-right"),
    (("utils/transcribe.py",), "", "--any-end-s --utterance-s --posterior-scale"),
    (
        ("utils/transcribe.py",),
        "--stream",
        "--max-segment-s --min-pause-s --num-threads --channels --one-speaker",
    ),
    (("utils/subset_data_dir.py",), "--per-spk 3", "--seed"),
    (("utils/perturb_data_dir.py",), "", "--min-volume --max-volume --seed"),
    (
        ("utils/reverberate_data_dir.py",),
        "",
        "--speech-rvb-probability --fg-snrs --fg-interval --bg-snrs --num-bg-noises --babble-snrs",
    ),
]


def options_of(program):
    folder, _, name = program.rpartition("/")
    return step_of(name, folder or "steps")[1]


def parsed(cls, *words):
    return parse(cls, [*words, *("x" for _ in positionals_of(cls))])


def default_of(cls, flag):
    value = next(known.default for known in flags_of(cls) if f"--{known.name}" == flag)
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize(
    "program, chosen, unused",
    [(program, chosen, unused) for programs, chosen, unused in CASES for program in programs],
)
def test_unused_options_are_refused(program, chosen, unused):
    cls = options_of(program)
    parsed(cls, *chosen.split())
    for flag in unused.split():
        with pytest.raises(UserError, match=rf"^{flag} (cannot be combined with|has no effect)\b.*; omit it"):
            parsed(cls, *chosen.split(), f"{flag}={default_of(cls, flag)}")


@pytest.mark.parametrize(
    "program, words",
    [
        (
            "train_dnn.py",
            (
                "--natural-gradient online --ng-rank-in 20 --ng-alpha 4 --combine weights "
                "--combine-iterations 3 --sample-frames 9"
            ),
        ),
        (
            "train_dnn.py",
            (
                "--shrink-value 0.9 --shrink-saturation-threshold 0.3 --sample-frames 9 --activation sigmoid "
                "--normalize true"
            ),
        ),
        (
            "train_dnn.py",
            (
                "--priors posteriors --sample-frames 9 --schedule step --step-epochs 3 --halving-factor 0.3 "
                "--cmvn sliding --cmn-window 9"
            ),
        ),
        (
            "train_dnn.py",
            (
                "--network x.net --chunk 9 --combine average --sample-frames 9 --carry-state false "
                "--shrink-value 0.9"
            ),
        ),
        (
            "train_dnn.py",
            (
                "--activation tanh --fix-period-frames 3 --shrink-value 0.9 --heldout-by utterance --mix-up "
                "9 --layer-period-frames 9"
            ),
        ),
        ("train_dnn.py", "--teacher x --mix-up 9 --heldout-seed 3 --checkpoint-minutes 1"),
        ("train_dnn.py", "--dbn x --mix-up 9 --combine weights"),
        ("utils/subset_data_dir.py", "--max-same-text 3 --seed 1"),
        ("utils/transcribe.py", "--channels each --one-speaker true"),
        ("train_smbr.py", "--criterion mmi --boost 0.1 --drop-frames false"),
        (
            "make_mfcc.py",
            "--dither 1 --seed 3 --add-pitch true --min-f0 60 --use-energy false --energy-floor 1",
        ),
        ("decode_ctc.py", "--search prefix --lm x --lm-weight 1 --oov-cost 3"),
        ("get_ctm.py", "--decode-mbr false --posterior-scale 0.3"),
        ("score.py", "--decode-mbr true --posterior-scale 0.3"),
    ],
)
def test_used_options_are_accepted(program, words):
    parsed(options_of(program), *words.split())


def test_nested_conditions_are_applied():
    (found,) = (
        found for found in flags_of(options_of("simulate_parallel.py")) if found.name == "checkpoint-minutes"
    )
    assert "not used here" in usage_text(found.only)
    refusal = (
        "^--mix-up, --presoftmax-power cannot be combined with --network x: for feed-forward networks "
        "only; omit them$"
    )
    with pytest.raises(UserError, match=refusal):
        parsed(options_of("train_dnn.py"), "--network", "x", "--mix-up", "0", "--presoftmax-power=0")


@pytest.mark.parametrize(
    "program, unused",
    [
        ("train_ctc.py", "--splice-left --splice-right"),
        ("train_lfmmi.py", "--splice-left --splice-right --carry-state"),
        ("simulate_parallel.py", "--checkpoint-minutes"),
    ],
)
def test_help_omits_options_that_are_never_used(program, unused):
    with pytest.raises(HelpRequested) as caught:
        parse(options_of(program), ["--help-all"])
    listed = {line.split()[0] for line in str(caught.value).splitlines() if line.startswith("  --")}
    assert "--precision" in listed and not listed & set(unused.split())
    assert "not used here" not in str(caught.value)
