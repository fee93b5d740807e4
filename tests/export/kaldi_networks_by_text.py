"""What Kaldi's text forms of networks mean, from their documentation: files of nnet1 and nnet3 are computed
in float64, frame by frame."""

import re

import numpy as np


class Words:
    """The words of a text file; a bracket is one."""

    def __init__(self, text):
        self.words, self.at = re.findall(r"[^\s\[\]]+|\[|\]", text), 0

    def peek(self):
        return self.words[self.at]

    def next(self, *expected):
        self.at += 1
        word = self.words[self.at - 1]
        assert not expected or word in expected, (word, expected)
        return word

    def numbers(self):
        """What stands between brackets."""
        self.next("[")
        end = self.words.index("]", self.at)
        values, self.at = np.array(self.words[self.at : end], float), end + 1
        return values


def log_softmax(x):
    return x - np.log(np.exp(x - x.max()).sum()) - x.max()


UNITS = {
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Tanh": np.tanh,
    "RectifiedLinear": lambda x: np.maximum(x, 0),
    "LogSoftmax": log_softmax,
    "Softmax": lambda x: np.exp(log_softmax(x)),
}


def nnet1_outputs(text, frames):
    """Frames (T, D) through a file of nnet1, whose Splice repeats the first and the last."""
    words, frames = Words(text), np.asarray(frames, float)
    words.next("<Nnet>")
    while (kind := words.next().strip("<>")) != "/Nnet":
        dim_out, dim_in = int(words.next()), int(words.next())
        assert frames.shape[1] == dim_in
        if kind == "Splice":
            times = np.arange(len(frames))[:, None] + words.numbers().astype(int)
            frames = frames[times.clip(0, len(frames) - 1)].reshape(len(frames), -1)
        elif kind == "AddShift":
            frames = frames + words.numbers()
        elif kind == "Rescale":
            frames = frames * words.numbers()
        elif kind == "AffineTransform":
            weight = words.numbers().reshape(dim_out, dim_in)
            frames = frames @ weight.T + words.numbers()
        elif kind == "ParametricRelu":
            above, below = words.numbers(), words.numbers()
            frames = np.where(frames > 0, above * frames, below * frames)
        else:
            frames = np.array([UNITS[kind](frame) for frame in frames])
        assert frames.shape[1] == dim_out
    return frames


def component(words):
    """The function of one component of nnet3."""
    kind, fields = words.next().strip("<>").removesuffix("Component"), {}
    while (name := words.next().strip("<>")) != f"/{kind}Component":
        fields[name] = words.numbers() if words.peek() == "[" else words.next()
    if kind.endswith("Affine"):
        bias = fields["BiasParams"]
        return lambda x: fields["LinearParams"].reshape(len(bias), -1) @ x + bias
    if kind == "Pnorm":
        return lambda x: np.sqrt((x.reshape(int(fields["OutputDim"]), -1) ** 2).sum(1))
    if kind == "Normalize":
        return lambda x: x / np.sqrt(max(float(np.mean(x**2)), 2.0**-66)) * float(fields["TargetRms"])
    if kind == "NoOp":
        return lambda x: x
    special = {"FixedBias": lambda x: x + fields["Bias"], "FixedScale": lambda x: x * fields["Scales"]}
    return special.get(kind) or UNITS[kind]


class Nnet3:
    """A network of nnet3, from `<Nnet3>` to the priors.

    outputs(frames, times): log-likelihoods at those times; frames before the first and after the last are
    like these
    """

    def __init__(self, text):
        head, tail = text.split("\n\n", 1)
        self.nodes = {}
        for line in head.splitlines()[1:]:
            kind, rest = line.split(" ", 1)
            self.nodes[re.search(r"name=(\S+)", rest)[1]] = (
                kind,
                dict(re.findall(r"([\w-]+)=(.*?)(?= [\w-]+=|$)", rest)),
            )
        words = Words(tail)
        words.next("<NumComponents>")
        self.components = {}
        for _ in range(int(words.next())):
            words.next("<ComponentName>")
            name = words.next()
            self.components[name] = component(words)
        words.next("</Nnet3>")
        words.next("<LeftContext>")
        self.left = int(words.next())
        words.next("<RightContext>")
        self.right = int(words.next())
        words.next("<Priors>")
        priors = words.numbers()
        self.log_priors = np.log(priors) if len(priors) else 0.0

    def outputs(self, frames, times):
        self.seen = set()
        self.frames, self.known = np.asarray(frames, float), {}
        return np.array(
            [self._described(self.nodes["output"][1]["input"], t) - self.log_priors for t in times]
        )

    def _node(self, name, t):
        if (name, t) not in self.known:
            self.known[name, t] = self._value(name, t)
        return self.known[name, t]

    def _value(self, name, t):
        kind, settings = self.nodes[name]
        if kind == "input-node":
            self.seen.add(t)
            assert self.frames.shape[1] == int(settings["dim"])
            return self.frames[min(max(t, 0), len(self.frames) - 1)]
        return self.components[settings["component"]](self._described(settings["input"], t))

    def _described(self, descriptor, t):
        if match := re.fullmatch(r"Append\((.*)\)", descriptor):
            return np.concatenate([self._described(part, t) for part in re.split(r", (?![^(]*\))", match[1])])
        if match := re.fullmatch(r"Sum\(Scale\((\S+), (.*)\), (\w+)\)", descriptor):
            return float(match[1]) * self._described(match[2], t) + self._described(match[3], t)
        if match := re.fullmatch(r"Offset\((\w+), (-?\d+)\)", descriptor):
            return self._node(match[1], t + int(match[2]))
        return self._node(descriptor, t)
