r"""An acoustic model as an ONNX file: from normalised features to the scores of the decoder.

    features (N, T, dim)  ->  log_likelihoods (N, T', num_pdfs)
    log p(x | s) + const  =  (log p(s | x) - log P(s)) * factor

for N sequences of T frames. The graph contains all operations of the model on features: derivatives,
splicing, normalisation of the network's input, priors, factor. It does not contain cepstral mean
normalisation and speaker transforms; the metadata of the file state which ones are required.

A graph has one of two kinds of input:

* utterance: whole utterances. The graph repeats their first and last frames for context, and divides them
  into the chunks of the training, with the results of `AcousticModel.log_likelihoods`.
  T' = ceil(T / subsampling).
* chunk: frames that include their context, for recognition of live speech: `left_context` and `right_context`
  frames, which the metadata state. T' = ceil((T - left_context - right_context) / subsampling).
"""

from __future__ import annotations

import dataclasses
import json
from functools import singledispatch

from torch import nn

from pyasr.base.errors import UserError
from pyasr.export.onnx_chunks import Chunks
from pyasr.export.onnx_graph import OnnxGraph, model_file
from pyasr.export.onnx_layers import add_layer
from pyasr.export.onnx_ops import missing, repeat_ends, reshape, shifted, side_by_side, size
from pyasr.export.source import feature_dim
from pyasr.export.values import array
from pyasr.feats.deltas import DELTA_WINDOW, delta_matrix
from pyasr.feats.inputs import InputOptions
from pyasr.nn.networks.acoustic import AcousticModel
from pyasr.nn.networks.feed_forward import FeedForward
from pyasr.nn.networks.layered import LayeredNetwork

FEATURES, SCORES = "features", "log_likelihoods"
_DOC = (
    "Scores log p(x | s) + const of tied states s, for Kaldi's and pyasr's decoders; see pyasr's "
    "docs/decoding/export.md"
)


def acoustic_onnx(model: AcousticModel, options: InputOptions, unit: str, feature_options: str = "") -> bytes:
    """Content of an ONNX file.

    options          conversion of features to the model's input
    feature_options  options of the feature extraction, as JSON, for the metadata

    Raises UserError for a network that cannot be exported, or that is too large.
    """
    graph, whole = OnnxGraph("acoustic model"), unit == "utterance"
    dim = feature_dim(model, options)
    x = graph.op("Transpose", graph.input(FEATURES, ("batch", "frames", dim)), perm=[1, 0, 2])
    x = _spliced(graph, _with_deltas(graph, x, options.deltas, whole), options, whole)
    x = _normalised(graph, x, model)
    z = graph.op("LogSoftmax", _logits(model.network, graph, x, whole), axis=2)
    scores = graph.op("Sub", z, graph.constant(array(model.log_priors)))
    if model.factor != 1.0:
        scores = graph.op("Mul", scores, graph.constant(model.factor))
    graph.output(graph.op("Transpose", scores, perm=[1, 0, 2]), SCORES, ("batch", "outputs", model.num_pdfs))
    return model_file(graph, _DOC, _metadata(model, options, unit, feature_options))


def context(model: AcousticModel, options: InputOptions) -> tuple[int, int]:
    """Frames before and after its own frame that an output depends on."""
    reach = options.deltas * DELTA_WINDOW
    left, right = getattr(model.network, "left", 0), getattr(model.network, "right", 0)
    return left + options.splice_left + reach, right + options.splice_right + reach


def _metadata(model: AcousticModel, options: InputOptions, unit: str, feature_options: str) -> dict[str, str]:
    left, right = context(model, options)
    numbers = {
        "left_context": left,
        "right_context": right,
        "subsampling": model.subsampling,
        "num_pdfs": model.num_pdfs,
    }
    values = {
        "unit": unit,
        **numbers,
        "chunk": getattr(model.network, "chunk", 0),
        "cmvn": options.cmvn,
        "norm_vars": options.norm_vars,
    }
    sliding = dataclasses.asdict(options.sliding) if options.cmvn == "sliding" else {}
    entries = {
        name: json.dumps(value) if not isinstance(value, str) else value
        for name, value in {**values, **sliding}.items()
    }
    return {**entries, "feature_options": feature_options} if feature_options else entries


def _with_deltas(graph: OnnxGraph, x: str, order: int, whole: bool) -> str:
    """As `pyasr.feats.deltas.add_deltas`: a product of the frames around each frame and the filters."""
    if not order:
        return x
    reach = order * DELTA_WINDOW
    x = repeat_ends(graph, x, reach, reach) if whole else x
    axis = graph.constant([2])
    around = graph.op(
        "Concat",
        *(graph.op("Unsqueeze", part, axis) for part in shifted(graph, x, list(range(-reach, reach + 1)))),
        axis=2,
    )
    return reshape(graph, graph.op("MatMul", graph.constant(delta_matrix(order)), around), 0, 0, -1)


def _spliced(graph: OnnxGraph, x: str, options: InputOptions, whole: bool) -> str:
    """As `pyasr.feats.deltas.splice`."""
    left, right = options.splice_left, options.splice_right
    x = repeat_ends(graph, x, left, right) if whole else x
    return side_by_side(graph, shifted(graph, x, list(range(-left, right + 1)))) if left or right else x


def _normalised(graph: OnnxGraph, x: str, model: AcousticModel) -> str:
    return graph.op(
        "Mul", graph.op("Sub", x, graph.constant(array(model.mean))), graph.constant(array(model.inverse_std))
    )


@singledispatch
def _logits(network: nn.Module, graph: OnnxGraph, x: str, whole: bool) -> str:
    """From the network's input (T, N, input_dim) to logits (T', N, num_pdfs)."""
    raise UserError(
        f"a network of type {type(network).__name__} is only for training; export the model that the "
        "training has written"
    )


@_logits.register
def _(network: FeedForward, graph: OnnxGraph, x: str, whole: bool) -> str:
    if network.transform is not None:
        weight, bias = array(network.transform)[:, :-1], array(network.transform)[:, -1]
        x = graph.op("Add", graph.op("MatMul", x, graph.constant(weight.T)), graph.constant(bias))
    z = add_layer(network.layers, graph, x)
    if network.output_scales is not None:
        z = graph.op("Mul", z, graph.constant(array(network.output_scales)))
    return z if network.sum_group is None else add_layer(network.sum_group, graph, z)


@_logits.register
def _(network: LayeredNetwork, graph: OnnxGraph, x: str, whole: bool) -> str:
    if not whole:
        return _layers(network, graph, x)
    if not network.chunk:
        return _layers(network, graph, repeat_ends(graph, x, network.left, _num_after(network, graph, x)))
    chunks = Chunks(network, graph, x)
    return chunks.joined(_layers(network, graph, chunks.frames()))


def _num_after(network: LayeredNetwork, graph: OnnxGraph, x: str) -> int | str:
    """Number of repetitions of the last frame: for context, plus padding to a whole number of outputs."""
    if network.subsampling == 1:
        return network.right
    return graph.op(
        "Add", missing(graph, size(graph, x, 0), network.subsampling), graph.constant([network.right])
    )


def _layers(network: LayeredNetwork, graph: OnnxGraph, x: str) -> str:
    for layer in (*network.layers, network.output):
        x = add_layer(layer, graph, x)
    return x
