"""Inputs of the programs of benchmarks/scaling/scale.py, by the names in their commands: corpora of a size,
models, alignments, language models.

This module does not import large libraries, because the kernel counts the memory of a process for the
programs that it starts. Inputs that need numpy are created by `benchmarks/scaling/scale_corpus.py` and
`benchmarks/scaling/scale_language.py` in separate processes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from string import Formatter

from pyasr.base.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("tables", "speech", "short")
PER_ARCHIVE, NUM_CONTENTS, NUM_FEW = 4000, 240, 24
NUM_FREE = 30_000  # words of the corpus of tables
_LANGUAGE = {"lang": "language/lang", "lexicon": "language/lexicon.txt"}
SEARCH = "--beam 11"
_TRAINED = (
    "--nj 1 --num-iters 6 --max-iter-inc 4 --realign-iters 3 --num-leaves 200 --num-gauss 400 {speech} {lang}"
)
_MODELS = [  # of the contents of the corpora
    "utils/train_lm.py {speech}/text {lexicon} {lm}",
    "utils/make_grammar.py {lang} {lm}/lm.arpa.gz {lang_test}",
    "steps/train_mono.py --nj 1 --num-iters 12 --max-iter-inc 9 --num-gauss 200 {speech} {lang} {mono}",
    f"steps/train_deltas.py {_TRAINED} {{mono}} {{tri1}}",
    "steps/align_si.py --nj 1 {speech} {lang} {tri1} {ali_speech}",
    "steps/align_si.py --nj 1 {short} {lang} {tri1} {ali_short}",
    f"steps/train_lda_mllt.py --mllt-iters 2 {_TRAINED} {{ali_speech}} {{tri2}}",
    f"steps/train_sat.py --fmllr-iters 2 {_TRAINED} {{tri2}} {{tri3}}",
    "utils/make_graph.py {lang_test} {tri1} {graph}",
    f"steps/decode.py --nj 1 {SEARCH} --model-dir {{tri1}} {{graph}} {{speech}} {{lattices_of_contents}}",
    "utils/make_graph.py {lang_test} {tri3} {graph_tri3}",
    (
        "steps/train_ivector_extractor.py --nj 1 --num-gauss 16 --ubm-iters 4 --ubm-split-iters 2 "
        "--ivector-dim 20 {speech} {extractor}"
    ),
    "steps/build_chain_tree.py --nj 1 --num-leaves 100 {speech} {lang} {ali_speech} {chain_tree}",
    "utils/train_subwords.py --num-units 100 {speech} {units}",
    (
        "steps/train_dnn.py --num-ranks 1 --hidden-layers 1 --hidden-dim 64 --num-epochs 1 {speech} {lang} "
        "{ali_speech} {dnn}"
    ),
]


def run_quietly(command: str) -> None:
    """Run a program of the toolkit. Raises UserError with its last line if it fails."""
    program, *words = command.split()
    done = subprocess.run(
        [sys.executable, str(ROOT / program), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise UserError(f"{command}: failed: {(done.stdout.strip().splitlines() or ['no output'])[-1]}")


def _call(module: str, function: str, arguments: tuple) -> None:
    getattr(import_module(module), function)(*arguments)


def make(module: str, function: str, out: Path, *arguments) -> Path:
    """`out`; if it does not exist, it is created by a function of a module in this directory, in a separate
    process. Raises UserError if that fails."""
    if not out.exists():
        part = out.with_name(f"{out.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        out.parent.mkdir(parents=True, exist_ok=True)
        process = get_context("spawn").Process(target=_call, args=(module, function, (part, *arguments)))
        process.start()
        process.join()
        if process.exitcode:
            raise UserError(f"{out}: could not be created; see above")
        part.rename(out)
    return out


def _names(command: str) -> list[str]:
    """The names in braces, in order."""
    return [name for _, name, _, _ in Formatter().parse(command) if name]


class Ground:
    """Inputs in `scratch`/ground, which all sizes share, and `scratch`/size, the corpora of one size."""

    def __init__(self, scratch: Path):
        self.shared, self.sized = scratch / "ground", scratch / "size"

    def path(self, name: str) -> Path:
        """Path of language, contents or models, by the names of `_MODELS`; missing inputs are created."""
        make("scale_corpus", "write_language", self.shared / "language")
        if name in KINDS:
            return self._write_data(self._place(name), name, 0, NUM_CONTENTS)
        if name not in _LANGUAGE and not self._place(name).exists():
            command = next(command for command in _MODELS if command.endswith(f"{{{name}}}"))
            paths = {word: self._place(word) if word == name else self.path(word) for word in _names(command)}
            run_quietly(command.format_map(paths))
        return self._place(name)

    def _place(self, name: str) -> Path:
        return self.shared / _LANGUAGE.get(name, f"data/{name}" if name in KINDS else name)

    def _contents(self, kind: str) -> Path:
        return make("scale_corpus", "write_contents", self.shared / "contents" / kind, kind)

    def _write_data(self, out: Path, kind: str, first: int, num: int) -> Path:
        return make("scale_corpus", "write_data", out, self._contents(kind), kind, first, num)

    def frames(self, kind: str, num: int) -> int:
        """Number of frames of a corpus of `num` utterances."""
        counts = list(map(int, (self._contents(kind) / "frames").read_text(encoding="utf-8").split()))
        return num * sum(counts) // len(counts)

    def data(self, kind: str, num: int, first: int = 0) -> Path:
        """A data directory of utterances `first` to `first` + `num`."""
        return self._write_data(self.sized / f"{kind}_{first}_{num}", kind, first, num)

    def alignments(self, kind: str, num: int) -> Path:
        """By tri1."""
        of_contents = self.path(f"ali_{kind}")
        return make("scale_corpus", "copy_alignments", self.sized / f"ali_{kind}_{num}", of_contents, num)

    def transforms(self, num: int) -> Path:
        """Transforms of the speakers of a corpus."""
        return make("scale_corpus", "write_transforms", self.sized / f"transforms_{num}", num)

    def lattices(self, num: int) -> Path:
        """Lattices of the corpus of speech, by tri1."""
        of_contents = self.path("lattices_of_contents")
        return make("scale_corpus", "copy_lattices", self.sized / f"lattices_{num}", of_contents, num)

    def manifests(self, num: int) -> Path:
        """Lhotse's recordings and supervisions of the corpus of tables."""
        out = self.sized / f"manifests_{num}"
        return make("scale_corpus", "write_manifests", out, self.data("tables", num))

    def ctm(self, num: int) -> Path:
        """Times of the words in the corpus of speech."""
        out = self.sized / f"ctm_{num}"
        if not out.exists():
            data, ali = self.data("speech", num), self.alignments("speech", num)
            run_quietly(f"steps/get_train_ctm.py {data} {self.path('lang')} {ali} {out}")
        return out

    def large_lexicon(self) -> Path:
        """A lexicon of all words in the corpus of tables."""
        language = make("scale_corpus", "write_language", self.shared / "large_language", NUM_FREE)
        return language / "lexicon.txt"

    def small_network(self) -> Path:
        """A file of layers."""
        path = self.shared / "small.net"
        path.write_text("tdnn splice=-1..1 dim=16 stride=3\n", encoding="utf-8")
        return path

    def language_model(self, num_ngrams: int) -> Path:
        """An ARPA file of about this number of n-grams, whose vocabulary includes that of the contents."""
        out = self.sized / f"ngrams_{num_ngrams}"
        return make("scale_language", "write_model", out, num_ngrams) / "lm.arpa.gz"

    def large_language(self, num_words: int) -> Path:
        """A dictionary directory `dict` of this number of words, and `lm.arpa.gz` with as many n-grams per
        word as LibriSpeech's pruned trigram."""
        return make("scale_language", "write_language", self.sized / f"words_{num_words}", num_words)

    def from_large(self, num_words: int, name: str, command: str) -> Path:
        """The output of a program for `large_language`."""
        made = self.large_language(num_words)
        if not (made / name).exists():
            run_quietly(command.format(made=made, tri1=self.path("tri1")))
        return made / name

    def forget_sized(self) -> None:
        """Remove the corpora of a size."""
        shutil.rmtree(self.sized, ignore_errors=True)


class Names:
    """Paths by the names in the command of a row, for `str.format_map`. Directories that a program changes
    are copies in `work`."""

    def __init__(self, ground: Ground, kind: str, size: int, work: Path):
        self._ground, self._kind, self._size, self._work = ground, kind, size, work

    def __getitem__(self, name: str) -> str:
        own = getattr(self, f"_{name}_", None)
        return str(own() if own else self._ground.path(name))

    def _data_(self) -> Path:
        return self._linked("data", self._ground.data(self._kind, self._size))

    def _half1_(self) -> Path:
        return self._ground.data(self._kind, self._size // 2)

    def _half2_(self) -> Path:
        return self._ground.data(self._kind, self._size // 2, self._size // 2)

    def _ali_(self) -> Path:
        return self._ground.alignments(self._kind, self._size)

    def _manifests_(self) -> Path:
        return self._ground.manifests(self._size)

    def _ctm_(self) -> Path:
        return self._ground.ctm(self._size)

    def _small_network_(self) -> Path:
        return self._ground.small_network()

    def _transforms_(self) -> Path:
        return self._ground.transforms(self._size)

    def _decoded_(self) -> Path:
        return self._linked("decoded", self._ground.lattices(self._size))

    def _arpa_(self) -> Path:
        return self._ground.language_model(self._size)

    def _large_(self) -> Path:
        return self._ground.large_language(self._size)

    def _large_lang_(self) -> Path:
        return self._from_large("lang", "utils/prepare_lang.py {made}/dict <unk> {made}/lang")

    def _large_lang_test_(self) -> Path:
        self._large_lang_()
        return self._from_large(
            "lang_test", "utils/make_grammar.py {made}/lang {made}/lm.arpa.gz {made}/lang_test"
        )

    def _large_graph_(self) -> Path:
        self._large_lang_test_()
        return self._from_large("graph", "utils/make_graph.py {made}/lang_test {tri1} {made}/graph")

    def _from_large(self, name: str, command: str) -> Path:
        return self._ground.from_large(self._size, name, command)

    def _large_lexicon_(self) -> Path:
        return self._ground.large_lexicon()

    def _thousand_(self) -> Path:
        return self._linked("thousand", self._ground.data(self._kind, 1000))

    def _size_(self) -> int:
        return self._size

    def _few_(self) -> Path:
        return self._ground.data("speech", NUM_FEW)

    def _out_(self) -> Path:
        return self._work / "out"

    def _half_(self) -> int:
        return self._size // 2

    def _parts_(self) -> int:
        return max(self._size // PER_ARCHIVE, 2)

    def _linked(self, name: str, source: Path) -> Path:
        """A directory of links to the files of another one; programs replace files and do not change them."""
        own = self._work / name
        own.mkdir(parents=True, exist_ok=True)
        for path in files_in(source):
            if not (own / path.name).exists():
                os.link(path, own / path.name)
        return own


def files_in(directory: Path) -> Iterator[Path]:
    return (path for path in sorted(directory.iterdir()) if path.is_file())
