"""Defaults, constants and recipe options that are published numbers, each with its source."""

import dataclasses
from pathlib import Path

import pytest

from pyasr.base.cli.options import parse
from pyasr.nn.layers import natural_gradient, preconditioned_layers
from pyasr.nn.layers.preconditioned_layers import NaturalGradientOptions
from pyasr.nn.networks import rbm
from pyasr.nn.networks.layered import parse_line, read_network
from pyasr.sequence.lfmmi import chain, denominator_graph
from pyasr.sequence.lfmmi.lfmmi import LfMmiOptions
from pyasr.sequence.lfmmi.phone_lm import PhoneLmOptions
from pyasr.sequence.lfmmi.supervision import ToleranceOptions
from pyasr.train.data.input_transform import InputTransformOptions
from pyasr.train.evolve import combine, priors
from pyasr.train.evolve.growth import GrowthOptions
from pyasr.train.objectives.lfmmi_training import LfMmiTraining
from pyasr.train.schedules import ScheduleOptions, make_schedule
from pyasr.train.sgd import rbm_learner
from pyasr.train.sgd.rbm_learner import MomentumOptions
from pyasr.train.steps.dbn_step import DbnStep
from pyasr.train.steps.dnn_step import DnnStep
from pyasr.train.steps.lfmmi_step import LfMmiStep, RegularisationOptions
from pyasr.train.steps.smbr_step import SmbrTraining
from pyasr.train.targets import chain_tree
from pyasr.train.targets.chain_tree import ChainTreeOptions
from pyasr.train.targets.soft_targets import TeacherOptions
from pyasr.train.training_options import RbmOptions

CONF = Path(__file__).resolve().parents[3] / "egs" / "amazon_queen" / "s5" / "conf"


def flat(options) -> dict:
    """Options of all groups by name."""
    found = {}
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        found |= flat(value) if dataclasses.is_dataclass(value) else {field.name: value}
    return found


def step(cls, conf: str | None = None) -> dict:
    """The options of a step, with a config file."""
    words = ["data", "out"] if cls is DbnStep else ["data", "lang", "ali", "out"]
    return flat(parse(cls, words if conf is None else ["--config", str(CONF / conf), *words])[0])


PRETRAIN = "Kaldi's steps/nnet/pretrain_dbn.sh"
CD1 = "Kaldi's nnetbin/rbm-train-cd1-frmshuff.cc and nnet/nnet-rbm.h"
NATURAL = "Kaldi's nnet3/natural-gradient-online.cc; arXiv:1410.7455"
FAST = "Kaldi's steps/nnet2/train_pnorm_fast.sh"
TANH = "Kaldi's steps/nnet2/train_tanh.sh"
SMBR = "Kaldi's steps/nnet/train_mpe.sh in egs/swbd/s5c/local/nnet/run_dnn.sh"
NNET1 = "Kaldi's steps/nnet/train.sh and train_scheduler.sh"
TDNN_B = "Kaldi's egs/swbd/s5c/local/nnet3/tuning/run_tdnn_b.sh and nnet3/train_dnn.py"
LSTMP = "Kaldi's egs/swbd lstm and nnet3/train_rnn.py"
COMBINE = "Kaldi's steps/nnet3/get_egs.sh, num_train_frames_combine"
PEEPHOLES = "Kaldi's NaturalGradientPerElementScaleComponent, nnet3/nnet-simple-component.cc"
IBM = "arXiv:1904.04956"
CHAN = "arXiv:1504.01482"
CHAIN = "Kaldi's egs/swbd/s5c/local/chain/tuning/run_tdnn_7q.sh and nnet3/chain/train.py"
CHAIN_7K = "Kaldi's egs/swbd/s5c/local/chain/tuning/run_tdnn_7k.sh"
CHAIN_TREE = "Kaldi's steps/nnet3/chain/build_tree.sh; bin/build-tree.cc has 300 for three times the frames"

OPTIONS = [
    (PRETRAIN, flat(RbmOptions()),
     dict(rbm_lr_low=0.01, rbm_lr=0.4, rbm_l2penalty=0.0002, param_stddev=0.1, max_frames=6000, rbm_iter=1)),
    (PRETRAIN, step(DbnStep),
     dict(hidden_layers=6, hidden_dim=2048, minibatch=100, splice_left=5, splice_right=5)),
    (CD1, flat(MomentumOptions()),
     dict(momentum_initial=0.5, momentum_final=0.9, momentum_steps=40, momentum_step_frames=500_000,
          with_bug=True)),
    (FAST, flat(NaturalGradientOptions()),
     dict(ng_rank_in=20, ng_rank_out=80, ng_alpha=4.0, ng_num_samples_history=2000.0, ng_update_period=4)),
    ("Kaldi's documentation of nnet2 (its code has 0.001 for the first)", flat(InputTransformOptions()),
     dict(within_class_factor=1e-4, max_singular_value=5.0)),
    (FAST, flat(GrowthOptions()), dict(mix_up_power=0.25, mix_up_min_count=10.0, mix_up_stddev=0.01)),
    (NNET1, flat(ScheduleOptions()),
     dict(start_halving_gain=0.01, end_halving_gain=0.001, halving_factor=0.5)),
    ("arXiv:1507.01239", flat(ScheduleOptions()), dict(final_factor=0.01, lr_scaling="linear")),
    ("arXiv:1504.01483", flat(TeacherOptions()), dict(teacher_mass=0.98)),
    (SMBR, flat(SmbrTraining()),
     dict(criterion="smbr", one_silence_class=True, drop_frames=True, minibatch=1, learning_rate=1e-5,
          num_epochs=4, final_factor=1.0, lr_convention="sum")),
    ("Kaldi's chain/chain-training.h and steps/nnet3/chain/train.py (its recipes have 0.1)",
     flat(LfMmiOptions()), dict(leaky_hmm_coefficient=1e-5)),
    (CHAIN_7K, flat(LfMmiOptions()), dict(l2_regularize=5e-5)),
    (CHAIN_7K, flat(RegularisationOptions()), dict(xent_regularize=0.1)),
    ("Kaldi's chain/language-model.h", flat(PhoneLmOptions()), dict(ngram_order=4, no_prune_order=3)),
    (f"{CHAIN_7K} (1000 in Kaldi's chain/language-model.h)", flat(PhoneLmOptions()),
     dict(num_extra_lm_states=2000)),
    ("Kaldi's chain/chain-supervision.h", flat(ToleranceOptions()),
     dict(left_tolerance=5, right_tolerance=5)),
    (CHAIN_TREE, flat(ChainTreeOptions()),
     dict(split_thresh=300 / 3, cluster_thresh=-1.0, frame_subsampling_factor=3)),
    ("Kaldi's steps/nnet3/chain/train.py", flat(LfMmiTraining()),
     dict(chunk=150, max_change=2.0, final_factor=0.1)),
]  # fmt: skip
RECIPES = [
    (PRETRAIN, "dbn.conf", DbnStep,
     dict(hidden_layers=6, rbm_iter=1, rbm_lr_low=0.01, rbm_lr=0.4, minibatch=100)),
    (NNET1, "dnn_sigmoid.conf", DnnStep,
     dict(hidden_layers=6, activation="sigmoid", schedule="newbob", learning_rate=0.008, lr_convention="sum",
          minibatch=256, num_epochs=20, output_bias_rate=0.1, momentum=0.0, l2=0.0)),
    (FAST, "dnn_pnorm.conf", DnnStep,
     dict(activation="pnorm", hidden_dim=300, pnorm_group=10, input_transform="lda", presoftmax_power=-0.25,
          natural_gradient="online", ng_rank_in=20, ng_rank_out=80, max_change_per_sample=0.075,
          lr_convention="sum", final_factor=0.1, combine="weights", combine_models=20, priors="posteriors")),
    ("run_nnet2.sh of Kaldi's egs/swbd (effective rate)", "dnn_pnorm.conf", DnnStep,
     dict(learning_rate=0.005)),
    (TANH, "dnn_tanh.conf", DnnStep,
     dict(activation="tanh", input_transform="lda", natural_gradient="simple", ng_alpha=4.0,
          max_change_per_sample=10 / 128, last_layers_rate=0.5, lr_convention="sum", final_factor=0.1)),
    ("Kaldi's nnet3/nnet-training.h", "dnn.conf", DnnStep, dict(max_change=2.0)),
    (f"{IBM}; torch's rate 0.1 with momentum 0.9, 2560 segments of 16 ranks", "published/ibm.conf", DnnStep,
     dict(chunk=21, minibatch=2560 // 16 * 21, parallel="gradient", momentum=0.9, learning_rate=1.0,
          lr_scaling="none", schedule="warm-up", warm_up_epochs=10.0, warm_up_factor=10.0, num_epochs=16,
          natural_gradient="none", max_change=0.0)),
    (LSTMP, "published/lstmp.conf", DnnStep,
     dict(network=Path("conf/published/lstmp.net"), chunk=20, minibatch=100 * 20, momentum=0.5,
          natural_gradient="online", learning_rate=3e-4, final_factor=0.1, num_epochs=8, lr_convention="sum",
          schedule="exponential-frames", parallel="kaldi", initial_ranks=3, period_frames=20_000 * 20,
          ng_num_minibatches_history=4.0, max_change=2.0, combine="average", combine_models=20,
          shrink_value=0.99, shrink_saturation_threshold=0.4)),
    (COMBINE, "published/lstmp.conf", DnnStep, dict(sample_frames=60_000)),
    (COMBINE, "published/tdnn_b.conf", DnnStep, dict(sample_frames=60_000)),
    (TDNN_B, "published/tdnn_b.conf", DnnStep,
     dict(chunk=1, minibatch=512, momentum=0.0, natural_gradient="online", learning_rate=0.0017,
          final_factor=0.1, num_epochs=2, lr_convention="sum", schedule="exponential-frames",
          parallel="kaldi", initial_ranks=3, period_frames=400_000, max_change=2.0, combine="average",
          combine_models=20, priors="posteriors")),
    (CHAN, "published/tc_dnn_blstm_dnn.conf", DnnStep,
     dict(chunk=1, minibatch=128, learning_rate=0.1, schedule="step", halving_factor=0.5, least_rate=1e-5,
          num_epochs=14, lr_scaling="none", momentum=0.0, parallel="asgd", gradient_decay=1.0,
          server_momentum=0.0, natural_gradient="none")),
    (f"{CHAIN}; 64 chunks, 50 outputs of each, three passes to an epoch", "published/chain.conf", LfMmiStep,
     dict(network=Path("conf/network/tdnn_7q.net"), chunk=150, minibatch=64 * 50, momentum=0.0,
          natural_gradient="online", learning_rate=2.5e-4, final_factor=0.1, num_epochs=6 * 3,
          lr_convention="sum", schedule="exponential-frames", parallel="kaldi", initial_ranks=3,
          period_frames=round(5_000_000 / 3), max_change=2.0, max_change_per_layer=0.75,
          max_change_of_output=1.5, l2=0.01 / 50, dropout_schedule="0,0@0.20,0.5@0.50,0", combine="average",
          combine_models=20, leaky_hmm_coefficient=0.1, l2_regularize=0.0, xent_regularize=0.1, ngram_order=4,
          no_prune_order=3, num_extra_lm_states=2000, left_tolerance=5, right_tolerance=5,
          shift_frames=True)),
]  # fmt: skip


def layers(kind: str, repeat: int = 1, **published) -> list[tuple[str, dict]]:
    """`repeat` equal layers of a network: their kind, and the published options."""
    return [(kind, published)] * repeat


def lstmp(cells: int, **more) -> list[tuple[str, dict]]:
    """The layers of Kaldi's LSTMP; each projection has a quarter as many elements as there are cells."""
    memory = dict(
        cells=cells,
        recurrent=cells // 4,
        nonrecurrent=cells // 4,
        peepholes=True,
        bias=True,
        clip=0.0,
        **more,
    )
    remembering = [layer for delay in (1, 2, 3) for layer in layers("lstm", delay=delay, **memory)]
    return [
        *layers("tdnn", splice="-2..2", activation="relu"),
        *remembering,
        *layers("delay", frames=5),
        *layers("crop", left=40, right=0),
    ]


def chans(init: str, **dnn) -> list[tuple[str, dict]]:
    """The layers of Chan's TC-DNN-BLSTM-DNN, whose two DNNs are equal."""
    both = layers("affine", 2, splice="0", activation="relu", init=init, **dnn)
    window = dict(
        cells=128,
        left=10,
        right=10,
        clip=3.0,
        bias=False,
        init="0.01",
        recurrent=0,
        nonrecurrent=0,
        peepholes=False,
        delay=1,
    )
    return [*both, *layers("window-blstm", **window), *both]


def tdnn(*splices: str, first: int = 512, last: int = 512, init: str = "0") -> list[tuple[str, dict]]:
    """The layers of a TDNN of Kaldi's with ReLU; the dimension grows by the same factor from layer to
    layer."""
    dims = [round(first * (last / first) ** (k / (len(splices) - 1))) for k in range(len(splices))]
    return [
        ("tdnn", dict(splice=splice, dim=dim, activation="relu", normalize=True, init=init))
        for splice, dim in zip(splices, dims)
    ]


def tdnnf(dim: int, bottleneck: int, last: int, num_below: int, num_above: int) -> list[tuple[str, dict]]:
    """The layers of Kaldi's factorised TDNNs. Layers after the stride splice frames three apart in Kaldi,
    which are neighbours here."""
    factorised = dict(dim=dim, bottleneck_dim=bottleneck, bypass_scale=0.66, dropout=0.0)
    return [
        *layers("tdnnf", num_below, time_stride=1, stride=1, **factorised),
        *layers("tdnnf", time_stride=0, stride=3, **factorised),
        *layers("tdnnf", num_above, time_stride=1, stride=1, **factorised),
        *layers("linear", dim=last, semi_orthogonal=True),
        *layers("affine", dim=dim, activation="relu", layer_norm=True),
        *layers("linear", dim=last, semi_orthogonal=True, layer_norm=True),
    ]


NETWORKS = [
    (CHAIN, "tdnn_7q",
     [*layers("tdnn", splice="-1..1", dim=1536, activation="relu", layer_norm=True, dropout_per_dim=True,
              dropout=0.0),
      *tdnnf(1536, 192, 256, 3, 10)]),
    ("Kaldi's egs/mini_librispeech/s5/local/chain/tuning/run_tdnn_1h.sh and 1j; narrower, a layer less",
     "tdnnf_chain", [*layers("tdnn", activation="relu", layer_norm=True), *tdnnf(512, 96, 192, 3, 7)]),
    (IBM, "ibm",
     [*layers("blstm", 6, cells=512, recurrent=0, nonrecurrent=0, peepholes=False, clip=0.0, bias=True,
              delay=1),
      *layers("linear", dim=256, activation="none")]),
    (f"{LSTMP}, steps/nnet3/lstm/make_configs.py and components.py; nnet3/nnet-simple-component.cc",
     "../published/lstmp",
     lstmp(1024, clip_gradient=30.0, projection_bias=True, init="kaldi", natural_peepholes=True)),
    (f"{LSTMP}; without limits on derivatives and biases of projections", "lstmp",
     lstmp(1024, clip_gradient=0.0, projection_bias=False, init="0", natural_peepholes=False)),
    (f"{LSTMP}; half as wide", "lstmp_512", lstmp(512)),
    (f"{CHAN}; 0.001 taken for a variance", "tc_dnn_blstm_dnn", chans("0.0316", dim=2048)),
    (f"{CHAN}; DNNs of a quarter of the width, which begin as rectifiers do", "tc_dnn_blstm_dnn_512",
     chans("0", dim=512)),
    (f"{TDNN_B}, nnet3/tdnn/make_configs.py and components.py", "tdnn_b",
     tdnn("-2..2", *3 * ["-1,1"], *3 * ["-2,2"], "-4,4", "0", last=1024, init="kaldi")),
    ("Kaldi's egs/swbd/s5c/local/nnet3/run_tdnn.sh; narrower", "tdnn",
     tdnn("-2..2", "-1,2", "-3,3", "-7,2", "0")),
]  # fmt: skip


@pytest.mark.parametrize("source, found, published", OPTIONS)
def test_defaults_equal_publications(source, found, published):
    assert {name: found[name] for name in published} == published, source


@pytest.mark.parametrize("source, conf, cls, published", RECIPES)
def test_recipes_equal_publications(source, conf, cls, published):
    found = step(cls, conf)
    assert {name: found[name] for name in published} == published, source


@pytest.mark.parametrize("source, network, published", NETWORKS)
def test_networks_equal_publications(source, network, published):
    found = [layer for text in read_network(CONF / f"network/{network}.net") for layer in parse_line(text)]
    names = [options.keys() for _, options in published]
    assert len(found) == len(published), source
    assert [
        (layer.kind, {name: getattr(layer.options, name) for name in some})
        for layer, some in zip(found, names)
    ] == published, source


@pytest.mark.parametrize("num_epochs", [14, 17])
def test_rate_halved_every_epoch_equals_publications(num_epochs):
    """arXiv:1504.01482, with a parameter server and with one GPU: from 0.1 down to 1e-5."""
    words = [
        "--config",
        str(CONF / "published/tc_dnn_blstm_dnn.conf"),
        "--num-epochs",
        str(num_epochs),
        "data",
        "lang",
        "ali",
        "out",
    ]
    schedule = make_schedule(parse(DnnStep, words)[0].training.schedule, 1000)
    rates = []
    while not schedule.finished:
        begin = 1000 * len(rates)
        assert schedule.rate(begin) == schedule.rate(begin + 999)
        rates.append(schedule.rate(begin))
        schedule.end_epoch(1.0, 0.0)
    assert rates == [max(0.1 / 2**epoch, 1e-5) for epoch in range(num_epochs)]


@pytest.mark.parametrize(
    "source, module, name, published",
    [
        (NATURAL, natural_gradient, "EPSILON", 1e-10),
        (PEEPHOLES, preconditioned_layers, "FACTORS_RANK", 8),
        (PEEPHOLES, preconditioned_layers, "FACTORS_UPDATE_PERIOD", 10),
        (NATURAL, natural_gradient, "DELTA", 5e-4),
        (NATURAL, natural_gradient, "_MAX_ETA", 0.9),
        (NATURAL, natural_gradient, "NUM_FIRST_UPDATES", 10),
        (NATURAL, natural_gradient, "_NUM_FIRST_PASSES", 3),
        (NATURAL, natural_gradient, "_MAX_CONDITION", 1e6),
        (NATURAL, natural_gradient, "ORTHONORMAL_TOLERANCE", 1e-3),
        (NATURAL, natural_gradient, "MAX_INVERSE_CHOLESKY", 100),
        ("Kaldi's nnet2/nnet-precondition.cc", natural_gradient, "_TRACE_FLOOR", 1e-20),
        ("Kaldi's steps/nnet3/chain/train.py", chain, "FRAME_SUBSAMPLING_FACTOR", 3),
        (
            "Kaldi's egs/swbd/s5c/local/chain",
            chain_tree,
            "_CONTEXT",
            dict(context_width=2, central_position=1),
        ),
        ("Kaldi's chain/chain-den-graph.cc", denominator_graph, "_NUM_STEPS", 100),
        (CD1, rbm, "MAX_RATIO", 2.0),
        (CD1, rbm_learner, "RATE_AFTER_EXPLOSION", 0.9),
        (PRETRAIN, rbm, "MIN_ACTIVATION", 1e-4),
        ("Kaldi's nnet2/combine-nnet-fast.cc", combine, "_ALPHA", 0.01),
        (FAST, priors, "_SMOOTHING", 0.01),
    ],
)
def test_constants_equal_publications(source, module, name, published):
    assert getattr(module, name) == published, source
