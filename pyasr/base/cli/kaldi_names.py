"""Options of Kaldi's programs and scripts that have another name in pyasr, or no effect.

OURS and _NEEDLESS give hints in the message about an unknown option; options in UNUSED are accepted silently.
An entry applies to the steps that have one of the pyasr flags named with it.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

# as Kaldi's programs read them
BOOLS = {"true": True, "false": False, "t": True, "f": False, "1": True, "0": False}
OURS = {  # Kaldi's option: ours
    "totgauss": "num-gauss", "numleaves": "num-leaves", "acwt": "acoustic-scale",
    "scale-opts": "acoustic-scale transition-scale self-loop-scale",
    "splice-opts": "splice-left splice-right", "splice-width": "splice-left splice-right",
    "splice": "splice-left splice-right", "cmvn-opts": "cmvn norm-vars", "feat.cmvn-opts": "cmvn norm-vars",
    "delta-opts": "deltas", "apply-cmvn-opts": "cmvn norm-vars", "lat-beam": "lattice-beam",
    "latbeam": "lattice-beam", "first-latbeam": "lattice-beam", "model": "model-dir", "srcdir": "model-dir",
    "fmllr-update": "fmllr-update-type", "first-max-arcs": "first-max-active",
    "word-ins-penalty": "word-ins-penalties word-ins-penalty", "min-lmwt": "min-lmwt lmwt",
    "max-lmwt": "max-lmwt lmwt", "frame-shift": "frame-shift frame-shift-s", "mbr-scale": "posterior-scale",
    "mfcc-config": "config", "fbank-config": "config", "plp-config": "config", "spectrogram-config": "config",
    "pitch-config": "config", "pitch-postprocess-config": "config",
    "paste-length-tolerance": "length-tolerance", "paste-vad-length-tolerance": "length-tolerance",
    "no-feats": "need-feats", "no-text": "need-text", "initial-learning-rate": "learning-rate",
    "initial-effective-lrate": "learning-rate", "final-learning-rate": "final-factor",
    "final-effective-lrate": "final-factor", "learn-rate": "learning-rate", "minibatch-size": "minibatch",
    "num-jobs-nnet": "num-ranks", "num-jobs-initial": "num-ranks", "num-jobs-final": "num-ranks",
    "num-hidden-layers": "hidden-layers", "hid-layers": "hidden-layers", "nn-depth": "hidden-layers",
    "hid-dim": "hidden-dim", "pnorm-input-dim": "hidden-dim", "pnorm-output-dim": "pnorm-group",
    "max-change-per-minibatch": "max-change", "samples-per-iter": "period-frames",
    "trainer.num-epochs": "num-epochs", "trainer.max-param-change": "max-change",
    "trainer.samples-per-iter": "period-frames",
    "trainer.optimization.initial-effective-lrate": "learning-rate",
    "trainer.optimization.final-effective-lrate": "final-factor",
    "trainer.optimization.minibatch-size": "minibatch", "trainer.optimization.num-jobs-initial": "num-ranks",
    "trainer.optimization.num-jobs-final": "num-ranks", "trainer.optimization.momentum": "momentum",
    "trainer.num-chunk-per-minibatch": "minibatch", "egs.chunk-width": "chunk",
    "chain.leaky-hmm-coefficient": "leaky-hmm-coefficient", "chain.l2-regularize": "l2-regularize",
    "chain.xent-regularize": "xent-regularize", "frames-per-eg": "chunk", "ivector-period": "ivector-period",
    "num-gauss-ubm": "num-gauss", "utts-per-spk": "utts-per-spk-max", "initial-beam": "first-beam",
    "regular-beam": "beam", "tscale": "transition-scale", "loopscale": "self-loop-scale",
    "norm-means": "cmvn", "normalize-mean": "cmvn", "normalize-variance": "norm-vars",
    "online-cmvn-config": "config", "hidden-layer-dim": "hidden-dim", "num-iters": "num-epochs",
    "max-iters": "num-epochs", "seed": "train-seed", "trainer.srand": "train-seed", "srand": "train-seed",
    "use-gpu": "device", "keep-lr-iters": "constant-epochs", "start-halving-impr": "start-halving-gain",
    "end-halving-impr": "end-halving-gain", "l2-penalty": "l2", "rbm-lrate": "rbm-lr",
    "rbm-lrate-low": "rbm-lr-low", "scheduler-opts": "schedule", "cv-utt-percent": "heldout-share",
    "num-utts-subset": "heldout-share", "egs.frames-per-eg": "chunk",
    "trainer.dropout-schedule": "dropout-schedule",
}  # fmt: skip
_AGAIN = "the same command resumes where it stopped; --force starts from scratch"
# Kaldi's option: a flag of the steps to which the entry applies, the reason why the option has no effect
_NEEDLESS = {
    "skip-scoring": ("lattice-beam", "decoding does not score, steps/score.py does"),
    "scoring-opts": ("lattice-beam", "decoding does not score; give them to steps/score.py"),
    "stage": ("force", _AGAIN),
    "train-stage": ("force", _AGAIN),
    "cleanup": ("force", "no intermediate files are kept"),
    "write-utt2num-frames": ("sample-frequency", "utt2num_frames is always written"),
    "write-utt2dur": ("sample-frequency", "durations are taken from the audio"),
    "utt2spk": ("sample-frequency", "speakers are taken from DATA/utt2spk"),
    "online-pitch-config": ("sample-frequency", "options of pitch go into --config, with --add-pitch true"),
    "use-graphs": ("retry-beam", "training graphs are built when needed"),
    "iter": ("nj", "the final model is used"),
    "parallel-opts": ("cmd", "options of jobs belong to --cmd"),
    "io-opts": ("cmd", "options of jobs belong to --cmd"),
    "train-tree": ("num-leaves", "a tree is always built"),
    "context-opts": ("num-leaves", "the context is one phone on either side"),
    "tree-stats-opts": ("num-leaves", "the context is one phone on either side"),
    "cluster-phones-opts": ("num-leaves", "the clustering of phones into questions has no options"),
    "compile-questions-opts": ("num-leaves", "the clustering of phones into questions has no options"),
    "phone-map": ("num-leaves", "alignments must use the phones of LANG"),
    "adapt-model": ("si-dir", "final.alimdl and final.mdl of the model directory are used"),
    "alignment-model": ("si-dir", "final.alimdl and final.mdl of the model directory are used"),
    "final-model": ("si-dir", "final.alimdl and final.mdl of the model directory are used"),
    "first-beam": ("determinize-mb", "utterances are decoded once"),
    "first-max-active": ("determinize-mb", "utterances are decoded once"),
    "online-ivector-dir": ("nj", "i-vectors are columns of the features, appended by steps/paste_feats.py"),
    "feat.online-ivector-dir": (
        "num-ranks",
        "i-vectors are columns of the features, appended by steps/paste_feats.py",
    ),
    "speaker-frames": ("cmn-window", "only frames of the utterance are used"),
    "global-frames": ("cmn-window", "only frames of the utterance are used"),
    "num-gselect": ("min-post", "all Gaussians are evaluated"),
    "feature-transform": ("hidden-layers", "input is described by --cmvn, --splice-left and --splice-right"),
    "feat-type": ("splice-left", "features of DATA are used as they are"),
    "egs.dir": ("num-ranks", "training reads features, no examples are written"),
    "egs-dir": ("num-ranks", "training reads features, no examples are written"),
    "careful": ("retry-beam", "an alignment always has to end in a final state"),
    "randprune": ("mllt-iters", "posteriors are not pruned at random"),
    "use-gpu": ("lattice-beam", "decoding runs on CPUs"),
    "post-decode-acwt": ("lattice-beam", "lattices keep their scores; steps/score.py tries LM weights"),
    "remove-oov": ("self-loop-scale", "a grammar contains only words of the lexicon"),
    "mono": ("self-loop-scale", "the context is that of the tree"),
    "left-biphone": ("self-loop-scale", "the context is that of the tree"),
    "quinphone": ("self-loop-scale", "the context is that of the tree"),
}


@dataclass(frozen=True)
class Unused:
    """An option of Kaldi's programs that is accepted with values that have no effect.

    flag      a flag of the steps that accept it
    type      type of its values
    taken     the accepted values; None: all
    reason    why other values are refused
    in_files  accepted in --config files only, which several programs of Kaldi share although some ignore the
              option
    """

    flag: str
    type: type
    taken: tuple | None = None
    reason: str = ""
    in_files: bool = False


_OF_ONLINE_PITCH = "pitch is tracked in whole utterances, as with --frames-per-chunk=0"
UNUSED = {
    "verbose": Unused("sample-frequency", int),
    "print-args": Unused("sample-frequency", bool),
    "debug-mel": Unused("num-mel-bins", bool),
    "max-feature-vectors": Unused("sample-frequency", int),
    "output-format": Unused("sample-frequency", str, ("kaldi",), "features are written in Kaldi's form"),
    "vtln-warp": Unused("vtln-low", float, (1.0,), "write the factors of speakers as DATA/spk2warp"),
    "vtln-map": Unused(
        "vtln-low", str, ("",), "write the factors as DATA/spk2warp, or those of utterances as DATA/utt2warp"
    ),
    "return-raw-fft": Unused(
        "sample-frequency", bool, (False,), "models do not take complex spectra as features"
    ),
    "preemph-coeff": Unused("min-f0", float, (0.0,), "pitch is tracked in the unfiltered signal"),
    "frames-per-chunk": Unused("min-f0", int, (0,), _OF_ONLINE_PITCH),
    "simulate-first-pass-online": Unused("min-f0", bool, (False,), _OF_ONLINE_PITCH),
    "recompute-frame": Unused("min-f0", int),
    "max-frames-latency": Unused("min-f0", int),
    "nccf-ballast-online": Unused("min-f0", bool, (False,), _OF_ONLINE_PITCH),
    "srand": Unused("min-f0", int),
    "first-beam": Unused("determinize-mb", float, in_files=True),
    "first-max-active": Unused("determinize-mb", int, in_files=True),
}


def advice(name: str, flags: Container[str]) -> str:
    """A hint on Kaldi's option `name` for a step with these flags; '' for other names and for steps without a
    related flag."""
    ours = [f"--{flag}" for flag in OURS.get(name, "").split() if flag in flags]
    if ours:
        return f"pyasr's option is {' and '.join(ours)}"
    flag, reason = _NEEDLESS.get(name, ("", ""))
    return f"it has no effect: {reason}; omit it" if reason and flag in flags else ""


def on_leading_numbers(words: list[str], flags: Container[str]) -> str:
    """A hint if arguments begin with the numbers of leaves and Gaussians, as in Kaldi's scripts; else ''."""
    if (
        len(words) < 2
        or not all(word.isdecimal() for word in words[:2])
        or not all(flag in flags for flag in ("num-leaves", "num-gauss"))
    ):
        return ""
    return f"; give the first two as --num-leaves {words[0]} --num-gauss {words[1]}"
