"""LSTM layers, in one direction, in both, and over a window."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.nn.layers.lstm import Lstm
from pyasr.nn.layers.sequence_layers import (
    Recurrent,
    SequenceLayer,
    WindowRecurrent,
    initialise_as_kaldi,
    initialise_lstm,
)
from pyasr.nn.networks.kinds.layer_parts import DropoutOptions, number_or_kaldi
from pyasr.nn.networks.kinds.layer_register import kind


@kind("lstm")
@dataclass(frozen=True)
class LstmOptions(DropoutOptions):
    """Long short-term memory, forward in time."""

    cells: int = option(1024, "number of cells, per direction", minimum=1)
    recurrent: int = option(0, "elements of the projection that are fed back; 0: no projection", minimum=0)
    nonrecurrent: int = option(0, "elements of the projection that are not fed back", minimum=0)
    peepholes: bool = option(False, "connect the cells to the gates (peepholes)")
    clip: float = option(0.0, "clip cells to [-c, c] (Chan and Lane: 3); 0 disables clipping", minimum=0.0)
    bias: bool = option(True, "biases of the gates")
    init: str = option(
        "0", "maximum magnitude of uniform initial weights; 0: 1 / sqrt(CELLS); kaldi: all as in its LSTMP"
    )
    forget_bias: float = option(1.0, "initial bias of the forget gate")
    delay: int = option(
        1, "frames between a frame and its recurrent input (Kaldi's layers: 1, 2, 3)", minimum=1
    )
    natural_peepholes: bool = option(
        False, "let --natural-gradient precondition the derivatives of peepholes, too (as Kaldi)"
    )
    projection_bias: bool = option(False, "biases of the projection (as Kaldi)")
    clip_gradient: float = option(
        0.0,
        "maximum norm of a frame's derivatives by the cells and by the recurrent input, for a loss summed "
        "over frames (Kaldi: 30); 0 disables clipping",
        minimum=0.0,
    )

    def build(self, dim_in: int) -> SequenceLayer:
        """The layer, uninitialised."""
        return Recurrent([self._direction(dim_in, False)], self.of_outputs())

    def _direction(self, dim_in: int, backward: bool) -> Lstm:
        if self.nonrecurrent and not self.recurrent:
            raise UserError(
                f"--nonrecurrent {self.nonrecurrent}: without --recurrent there is no projection; give both "
                "or neither"
            )
        if self.projection_bias and not self.recurrent:
            raise UserError(
                "--projection-bias: without --recurrent there is no projection; give both or neither"
            )
        if self.natural_peepholes and not self.peepholes:
            raise UserError("--natural-peepholes: needs --peepholes true; give both or neither")
        if self._width is None and self.forget_bias != LstmOptions.forget_bias:
            raise UserError(
                f"--forget-bias {self.forget_bias:g}: with --init kaldi all biases are random; omit the "
                "option"
            )
        if not self.bias and self.forget_bias != LstmOptions.forget_bias:
            raise UserError(
                f"--forget-bias {self.forget_bias:g}: with --bias false there is no bias; omit the option"
            )
        return Lstm(
            dim_in,
            self.cells,
            self.recurrent,
            self.nonrecurrent,
            peepholes=self.peepholes,
            cell_clip=self.clip,
            delay=self.delay,
            backward=backward,
            bias=self.bias,
            projection_bias=self.projection_bias,
            gradient_clip=self.clip_gradient,
            natural_peepholes=self.natural_peepholes,
        )

    @property
    def _width(self) -> float | None:
        """Maximum magnitude of uniform initial weights; None: Kaldi's initialisation. Raises UserError for
        other values."""
        return number_or_kaldi(self.init, "the maximum magnitude of initial weights")

    def initialise(self, layer: SequenceLayer, is_first: bool, random: torch.Generator) -> None:
        """Draw parameters."""
        for lstm in layer.directions:
            if self._width is None:
                initialise_as_kaldi(lstm, random)
            else:
                initialise_lstm(lstm, self._width, self.forget_bias, random)


@kind("blstm")
@dataclass(frozen=True)
class BlstmOptions(LstmOptions):
    """LSTM in both directions of time."""

    def build(self, dim_in: int) -> SequenceLayer:
        """The layer, uninitialised."""
        return Recurrent([self._direction(dim_in, backward) for backward in (False, True)], self.of_outputs())


@kind("window-blstm")
@dataclass(frozen=True)
class WindowBlstmOptions(LstmOptions):
    """Bidirectional LSTM over a window around each frame; its outputs at the ends of the window are used."""

    left: int = option(10, "frames of the window before the frame", minimum=0)
    right: int = option(10, "frames of the window after the frame", minimum=0)

    def build(self, dim_in: int) -> SequenceLayer:
        """The layer, uninitialised."""
        directions = [self._direction(dim_in, backward) for backward in (False, True)]
        return WindowRecurrent(directions, self.left, self.right, self.of_outputs())
