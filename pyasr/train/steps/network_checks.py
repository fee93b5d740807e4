"""Checks of the network to be trained, before any rank starts: its file, the DBN that it starts from, its
features. Imports torch."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.outputs.comparison import differences
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.feats.origin import check_origin
from pyasr.nn.files import DBN_FILE
from pyasr.nn.network_options import DnnOptions
from pyasr.nn.networks.dbn import load_dbn
from pyasr.nn.networks.kinds.lstm_kinds import LstmOptions
from pyasr.nn.networks.layered import parse_line, read_network
from pyasr.train.minibatches.over_time import OverTimeOptions
from pyasr.train.training_options import SATURATING, GrowthOptions


def check_network(
    shape: DnnOptions,
    over_time: OverTimeOptions,
    growth: GrowthOptions,
    input: InputOptions,
    data: Path,
    dbn: Path | None,
) -> None:
    """Raise UserError if the network of a file or a DBN does not fit the options or features of `data`."""
    if dbn:
        check_dbn(dbn, shape, input, data)
    if over_time.network:
        over_time.packing(input, FeatureReader(data, input).dim)
        check_shrinking(growth, has_saturating_layers(over_time.network))


def check_dbn(dbn_dir: Path, options: DnnOptions, input: InputOptions, data: Path) -> None:
    """Raise UserError unless a network with these options on `data` can start from the DBN in `dbn_dir`."""
    dbn = load_dbn(dbn_dir / DBN_FILE)
    changed = differences(dataclasses.asdict(InputOptions.load(dbn_dir)), dataclasses.asdict(input))
    if changed:
        raise UserError(
            f"{dbn_dir} was pretrained with other input options ({'; '.join(changed)}); give the "
            "same options, or pretrain again"
        )
    check_origin(data, dbn_dir)
    dbn.check(options, FeatureReader(data, input).dim, dbn_dir)


def has_saturating_layers(path: Path) -> bool:
    """Whether a layer of a network file has sigmoid or tanh units."""
    layers = [line.options for text in read_network(path) for line in parse_line(text)]
    return any(
        isinstance(layer, LstmOptions) or getattr(layer, "activation", "") in SATURATING for layer in layers
    )


def check_shrinking(growth: GrowthOptions, saturates: bool) -> None:
    """Raise UserError for --shrink-value if the network has no sigmoid or tanh units to saturate."""
    if growth.shrink_value < 1 and not saturates:
        reason = "the network has no sigmoid, tanh or lstm units, the only ones that saturate"
        raise UserError(f"--shrink-value {growth.shrink_value:g}: {reason}; omit --shrink-value")
