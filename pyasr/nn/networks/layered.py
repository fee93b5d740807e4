r"""Networks of layers over time, described by a file: TDNN, LSTM, CNN, and combinations of them.

    # conf/network/lstmp.net: three LSTM layers with projections (Kaldi's nnet3 recipe), output delayed by
    # 5 frames
    tdnn splice=-2..2 dim=512
    lstm cells=1024 recurrent=256 nonrecurrent=256 delay=1
    lstm cells=1024 recurrent=256 nonrecurrent=256 delay=2
    lstm cells=1024 recurrent=256 nonrecurrent=256 delay=3
    delay frames=5

A line consists of a kind of layer (`pyasr.nn.networks.kinds`) and its options; `repeat=3` stands for three
such layers. The input of the first layer, the normalised features, and the output layer are not in the file.
For any layers, the network maps

    (N, left + T + right, input_dim)   to   logits (N, T', num_pdfs),        T' = ceil(T / subsampling)

for N sequences of T frames with context; output j belongs to frame j * subsampling. Layers compute with time
as the first dimension, so inputs with this memory layout are fastest.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import torch
from torch import Tensor, nn

from pyasr.base.cli.options import parse
from pyasr.base.errors import UserError
from pyasr.base.utf8 import text_of
from pyasr.nn.layers.linear import Linear
from pyasr.nn.layers.lstm import LstmState
from pyasr.nn.layers.sequence_layers import Recurrent
from pyasr.nn.networks.described import Described
from pyasr.nn.networks.kinds.layer_register import LayerKind, find_kind, kinds

_CHUNKS = 64  # chunks of an utterance that are computed as a batch
# minimum frames of a chunk if chunks have no influence: in total, per frame of context
_MIN_FRAMES, _MIN_PER_CONTEXT = 100, 10


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of a network file: the kind of layer and its options."""

    kind: str
    options: LayerKind


def read_network(path: Path) -> list[str]:
    """The lines of a network file, without comments and empty lines. Raises UserError for an invalid line."""
    try:
        lines = text_of(Path(path).read_bytes(), path).splitlines()
    except OSError as error:
        raise UserError(
            f"{path}: {error.strerror}; give a file of layers, such as those in conf/network"
        ) from None
    kept = []
    for number, line in enumerate(lines, 1):
        if line := line.split("#")[0].strip():
            parse_line(line, f"{path}:{number}: ")
            kept.append(line)
    if not kept:
        raise UserError(f"{path}: the file has no layers; write at least one line such as 'affine dim=512'")
    return kept


def parse_line(text: str, where: str = "") -> list[Line]:
    """The layers of a line: one, or `repeat` of them. Raises UserError with the prefix `where`."""
    name, *words = text.split()
    if not (kind := find_kind(name)):
        raise UserError(f"{where}unknown kind of layer '{name}'; use one of {', '.join(sorted(kinds()))}")
    for word in words:
        if "=" not in word or word.partition("=")[0] in ("help", "config"):
            raise UserError(
                f"{where}'{word}' is not an option of a layer; write options as NAME=VALUE, such as dim=512"
            )
    repeats = [word.removeprefix("repeat=") for word in words if word.startswith("repeat=")]
    if any(not re.fullmatch("[1-9][0-9]{0,2}", number) for number in repeats):
        raise UserError(f"{where}repeat={repeats[-1]}: give an integer from 1 to 999")
    try:
        options, _ = parse(kind, [f"--{word}" for word in words if not word.startswith("repeat=")])
    except UserError as error:
        raise UserError(f"{where}{error}") from None
    return [Line(name, options)] * int((repeats or ["1"])[-1])


class LayeredNetwork(Described):
    """The network of the docstring above, on normalised features of `input_dim` columns.

    lines        lines of its file
    chunk        frames of a chunk in training, a multiple of `subsampling`, also used to split utterances; 0:
                 whole utterances
    left, right  frames of context
    subsampling  input frames per output frame
    """

    def __init__(self, lines: list[str], input_dim: int, num_pdfs: int, chunk: int = 0):
        super().__init__()
        self.lines, self.input_dim, self.num_pdfs, self.chunk = list(lines), input_dim, num_pdfs, chunk
        self.parsed = [line for text in lines for line in parse_line(text)]
        layers, dim, self.left, self.right, self.subsampling = [], input_dim, 0, 0, 1
        for line in self.parsed:
            layers.append(_build(line, dim))
            dim = layers[-1].dim_out
            self.left += layers[-1].left * self.subsampling
            self.right += layers[-1].right * self.subsampling
            self.subsampling *= layers[-1].stride
        self.layers, self.output = nn.ModuleList(layers), Linear(dim, num_pdfs)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(N, left + T + right, input_dim) to logits (N, T', num_pdfs).

        lengths  int64 (N): frames of each sequence, without context, at most T; None: T. The first
                 ceil(length / subsampling) outputs then depend only on the sequence and its context, whatever
                 follows it
        """
        return self.output(self.hidden(x, lengths)).transpose(0, 1)

    def hidden(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The output layer's input, (T', N, dim)."""
        x = x.transpose(0, 1)
        if lengths is None:
            for layer in self.layers:
                x = layer(x)
            return x
        lengths = self.left + whole_outputs(lengths, self.subsampling) + self.right
        for layer in self.layers:
            x, lengths = layer.of_lengths(x, lengths), layer.num_outputs(lengths)
        return x

    def go_on(
        self, x: Tensor, states: list[LstmState | None] | None
    ) -> tuple[Tensor, list[LstmState | None]]:
        """Logits as from `forward`, for T frames that continue sequences, and the states of all layers after
        these frames.

        states  result of the previous call; None: the sequences begin

        Calls for the parts of a sequence, each with its context on both sides, give the same logits as one
        call for the whole: the future context of layers above a recurrent one is computed in both parts.
        """
        num_frames, after = x.shape[1] - self.left - self.right, []
        x = x.transpose(0, 1)
        for layer, state in zip(self.layers, states or [None] * len(self.layers)):
            x, state = layer.go_on(x, state, num_frames)
            after.append(state)
            num_frames //= layer.stride
        return self.output(x).transpose(0, 1), after

    @property
    def is_recurrent(self) -> bool:
        """Whether a layer is recurrent, so that outputs depend on the position of chunks."""
        return any(isinstance(layer, Recurrent) for layer in self.layers)

    def check_carries_state(self) -> None:
        """Raise UserError if no layer is recurrent, or if a recurrent layer runs backward in time."""
        if not self.is_recurrent:
            raise UserError("the network has no recurrent layer; give one with lstm layers")
        if any(isinstance(layer, Recurrent) and layer.reads_backwards for layer in self.layers):
            raise UserError(
                "a blstm layer reads an utterance from its end; give a network whose recurrent layers are "
                "lstm layers"
            )

    def log_posteriors(self, x: Tensor) -> Tensor:
        """log p(s | x), (T', num_pdfs), of all frames (T, input_dim) of an utterance."""
        return torch.log_softmax(self.of_utterance(x), 1)

    def of_utterance(self, x: Tensor) -> Tensor:
        """Logits (T', num_pdfs) of all frames (T, input_dim) of an utterance; the first and the last are
        repeated as context.

        The utterance is split into chunks to bound the memory. For recurrent networks these are as long as in
        training, so that the network's memory is as long as there. Other networks, whose outputs do not
        depend on chunks, get longer chunks of about equal length, which share fewer frames of context.
        """
        if not len(x):
            return x.new_zeros(0, self.num_pdfs)
        whole = whole_outputs(len(x), self.subsampling)
        chunk = self.chunk or whole
        if not self.is_recurrent:
            least = max(chunk, _MIN_FRAMES, _MIN_PER_CONTEXT * (self.left + self.right))
            chunk = whole_outputs(-(-whole // max(whole // least, 1)), self.subsampling)
        begins = chunk_begins(len(x), chunk, self.subsampling)
        last = int(begins[-1])
        padded = torch.cat(
            [x[:1].expand(self.left, -1), x, x[-1:].expand(last + chunk - len(x) + self.right, -1)]
        )
        windows = padded.unfold(0, self.left + chunk + self.right, 1).transpose(1, 2)
        num_at_once = max(_CHUNKS * (self.chunk or chunk) // chunk, 1)
        found = torch.cat([self(windows[some]) for some in begins.split(num_at_once)])
        # outputs of the last chunk that the previous one has, too
        known = ((len(begins) - 1) * chunk - last) // self.subsampling
        joined = torch.cat([found[:-1].flatten(0, 1), found[-1, known:]])
        return joined[: whole // self.subsampling]

    @property
    def affine_layers(self) -> list[nn.Module]:
        """All modules with parameters of their own, in the order of the parameters."""
        return [module for module in self.modules() if any(True for _ in module.parameters(recurse=False))]

    def initialise(self, random: torch.Generator) -> None:
        """Draw initial parameters, the same for the same `random`; the output layer is 0, so training starts
        with equal posteriors."""
        for number, (line, layer) in enumerate(zip(self.parsed, self.layers)):
            if any(True for _ in layer.parameters()):
                line.options.initialise(layer, number == 0, random)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def describe(self) -> dict:
        """Everything except the parameters, in plain values, for `from_description`."""
        return {
            "kind": "layers",
            "lines": self.lines,
            "input_dim": self.input_dim,
            "num_pdfs": self.num_pdfs,
            "chunk": self.chunk,
        }

    @staticmethod
    def from_description(description: dict) -> LayeredNetwork:
        """A network with arbitrary parameters, of the shape that `describe` returned."""
        return LayeredNetwork(
            description["lines"], description["input_dim"], description["num_pdfs"], description["chunk"]
        )


def whole_outputs(num_frames, subsampling: int):
    """A number or array of frames, rounded up to whole outputs."""
    return -(-num_frames // subsampling) * subsampling


def chunk_begins(num_frames: int, chunk: int, subsampling: int) -> Tensor:
    """First frames of the chunks of an utterance, int64."""
    return torch.arange(0, num_frames, chunk).clamp(max=last_begin(num_frames, chunk, subsampling))


def last_begin(num_frames: int, chunk: int, subsampling: int) -> int:
    """Start of the last chunk, which ends with the utterance (up to `subsampling`) if that is long enough."""
    return max(whole_outputs(num_frames - chunk, subsampling), 0)


def _build(line: Line, dim: int) -> nn.Module:
    try:
        return line.options.build(dim)
    except UserError as error:
        raise UserError(f"layer '{line.kind}': {error}") from None
