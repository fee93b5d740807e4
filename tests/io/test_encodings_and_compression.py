"""Every reader of text reads a file with a byte order mark, or compressed, like the plain file."""

import bz2
import gzip
import lzma
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from toy_language import write_toy_lang

from pyasr.base.cli.options import option, parse
from pyasr.base.errors import UserError
from pyasr.base.files.foreign_json import read_object
from pyasr.cluster.runner.runner_config import read_runner_config
from pyasr.data.augmentation.sound_lists import SoundList
from pyasr.data.parts.subsets import listed
from pyasr.data.transcripts.ctm import read_ctm
from pyasr.decode.lattices.lattice_io import read_lattices
from pyasr.hmm.model.topology import Topology
from pyasr.hmm.trees.tree_building import read_roots
from pyasr.intake.lhotse import entries_in
from pyasr.io.ark import read_ark
from pyasr.io.content import read_content, unpack
from pyasr.io.fst_archive import read_fsts
from pyasr.io.int_vectors import read_int_vectors
from pyasr.io.posteriors import read_posteriors
from pyasr.io.text_tables import read_lines, read_numbers, read_table, utt2spk_table
from pyasr.lang.grammars.grammar import make_grammar
from pyasr.lang.lexicons.dict_dir import read_dict_dir
from pyasr.lang.lexicons.lexicon import read_cmudict, read_lexicon
from pyasr.lang.ngrams.arpa import read_arpa
from pyasr.lang.ngrams.vocabulary import read_sentences, read_vocabulary
from pyasr.lang.pronouncing.prepare_dict import read_dictionary
from pyasr.lang.symbols import SymbolTable, read_bytes
from pyasr.nn.networks.layered import read_network

MARK = b"\xef\xbb\xbf"
PACKING = {"gzip": gzip.compress, "xz": lzma.compress, "bzip2": bz2.compress}
TOPOLOGY = (
    "<Topology> <TopologyEntry> <ForPhones> 1 </ForPhones> <State> 0 <PdfClass> 0 <Transition> 0 0.5 "
    "<Transition> 1 0.5 </State> <State> 1 </State> </TopologyEntry> </Topology>\n"
)
ARPA = "\\data\\\nngram 1=3\n\n\\1-grams:\n-1 <s>\n-1 </s>\n-1 w1\n\n\\end\\\n"


@dataclass(frozen=True)
class Flags:
    """Options of a program."""

    num: int = option(1, "a number")


def dict_dir(path: Path):
    """A dictionary directory with the file as lexicon.txt, and matching phone lists."""
    head = MARK if path.read_bytes().startswith(MARK) else b""
    folder = path.parent / "dict"
    folder.mkdir(exist_ok=True)
    for name, content in (
        ("silence_phones", b"SIL\nSPN\n"),
        ("nonsilence_phones", b"AH\n"),
        ("optional_silence", b"SIL\n"),
        ("extra_questions", b"SIL SPN\n"),
    ):
        (folder / f"{name}.txt").write_bytes(head + content)
    (folder / "lexicon.txt").write_bytes(path.read_bytes())
    return vars(read_dict_dir(folder)) | {"lexicon": read_dict_dir(folder).lexicon.entries}


def grammar(path: Path):
    """The G.fst built from the file."""
    lang, out = path.parent / "lang", path.parent / "out"
    if not lang.exists():
        write_toy_lang(lang, num_words=3)
    out.mkdir(exist_ok=True)
    make_grammar(lang, path, out)
    return read_content(out / "G.fst")


READERS = {  # content, and what reads it
    "lines": ("one two\nthree\n", read_lines),
    "table": ("u1 one two\nu2\n", read_table),
    "utt2spk": ("u1 a\nu2 b\n", lambda path: dict(utt2spk_table(path).items())),
    "numbers": ("u1 1.5\n", read_numbers),
    "list of utterances": ("u1\nu2\n", listed),
    "text of sentences": ("u1 one two\nu2 one\n", read_sentences),
    "text without ids": ("one two\none\n", lambda path: read_sentences(path, ids=False)),
    "words": ("one\ntwo\n", read_vocabulary),
    "words.txt": ("<eps> 0\none 1\n", lambda path: SymbolTable.read(path).ids),
    "lexicon": ("one W AH N\n", lambda path: read_lexicon(path).entries),
    "lexicon with probabilities": ("one 0.5 W AH N\n", lambda path: read_lexicon(path, True).entries),
    "dictionary": ("one W AH N\n", lambda path: read_dictionary(str(path)).entries),
    "CMU dictionary": ("one W AH N\n", lambda path: read_cmudict(path).entries),
    "dictionary directory": ("<unk> SPN\none AH\n", dict_dir),
    "ARPA file": (
        ARPA,
        lambda path: [read_arpa(path).words, [table.ids.tolist() for table in read_arpa(path).tables]],
    ),
    "bytes of a text": ("one\n", read_bytes),
    "grammar": (ARPA, grammar),
    "ctm": ("a 1 0.0 0.5 one\n", read_ctm),
    "manifest": ('{"id": "a"}\n{"id": "b"}\n', lambda path: list(entries_in(path))),
    "manifest of an array": ('[{"id": "a"}]', lambda path: list(entries_in(path))),
    "roots": ("shared split 1 2\n", read_roots),
    "topology": (TOPOLOGY, Topology.read),
    "alignments": ("u1 1 2 2\n", read_int_vectors),
    "matrices": ("u1  [\n  1 2\n  3 4 ]\n", read_ark),
    "posteriors": (
        "u1 [ 1 0.5 ]\n",
        lambda path: {key: vars(found) for key, found in read_posteriors(path).items()},
    ),
    "transducers": (
        "u1 \n0 1 1 1 0.5\n1 0\n\n",
        lambda path: {key: found.text() for key, found in read_fsts(path).items()},
    ),
    "lattices": (
        "u1 \n0 1 1 1 0.5,0.5\n1 0,0\n\n",
        lambda path: [(key, vars(found)) for key, found in read_lattices(path)],
    ),
}
PLAIN = {  # those of which nothing is compressed
    "option file": ("--num=3\n", lambda path: parse(Flags, ["--config", str(path)], "")[0]),
    "runner's file": ("command qsub\noption mem=* -l mem=$0\n", read_runner_config),
    "network": ("affine dim=8\n", read_network),
    "JSON": ('{"a": 1}', read_object),
    "noises": ("a.wav\nb.wav\n", lambda path: SoundList(path).sounds),
}
ALL = READERS | PLAIN


def same(one, other) -> None:
    np.testing.assert_equal(one, other)


@pytest.fixture
def silent_sounds(tmp_path):
    import soundfile

    for name in ("a.wav", "b.wav"):
        soundfile.write(tmp_path / name, np.zeros(10), 8000)


@pytest.mark.parametrize("name", sorted(ALL))
@pytest.mark.parametrize("mark", [MARK, 2 * MARK], ids=["marked", "marked twice"])
def test_leading_byte_order_mark_is_skipped(name, mark, tmp_path, silent_sounds):
    (content, read), path = ALL[name], tmp_path / "file"
    path.write_text(content)
    expected = read(path)
    path.write_bytes(mark + content.encode())
    same(read(path), expected)


@pytest.mark.parametrize("name", sorted(READERS))
@pytest.mark.parametrize("packing", sorted(PACKING))
def test_compressed_files_are_read_with_any_name(name, packing, tmp_path):
    (content, read), path = READERS[name], tmp_path / "file"
    path.write_text(content)
    expected = read(path)
    path.write_bytes(PACKING[packing](content.encode()))
    same(read(path), expected)
    path.write_bytes(PACKING[packing](MARK + content.encode()))
    if name != "dictionary directory":
        same(read(path), expected)


@pytest.mark.parametrize("name", sorted(ALL))
@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_other_encodings_are_refused_by_name(name, encoding, tmp_path, silent_sounds):
    (content, read), path = ALL[name], tmp_path / "file"
    for order in ("le", "be"):
        path.write_bytes("\ufeff".encode(f"{encoding}-{order}") + content.encode(f"{encoding}-{order}"))
        with pytest.raises(
            UserError,
            match=f"{encoding.upper()} text, not UTF-8; convert the file with iconv -f {encoding} -t utf-8",
        ):
            read(path)


@pytest.mark.parametrize(
    "head, name, command",
    [
        (b"\x28\xb5\x2f\xfd", "zstd", "zstd -d"),
        (b"\x04\x22\x4d\x18", "lz4", "lz4 -d"),
        (b"\x1f\x9d\x90", "compress", "uncompress"),
        (b"PK\3\4", "zip", "unzip"),
    ],
)
@pytest.mark.parametrize("read", [read_content, lambda path: list(read_lattices(path))])
def test_other_compressions_are_refused_by_name(head, name, command, read, tmp_path):
    (tmp_path / "file").write_bytes(head + bytes(20))
    with pytest.raises(
        UserError,
        match=(
            f"file: compressed by {name}, which is not supported; unpack it with '{command}', or use gzip, xz"
        ),
    ):
        read(tmp_path / "file")


def test_legacy_xz_format_is_read(tmp_path):
    (tmp_path / "file").write_bytes(lzma.compress(b"text\n", format=lzma.FORMAT_ALONE))
    assert read_content(tmp_path / "file") == b"text\n"


@pytest.mark.parametrize("inner", sorted(PACKING))
@pytest.mark.parametrize("outer", sorted(PACKING))
def test_doubly_compressed_files_are_refused(inner, outer, tmp_path):
    (tmp_path / "file").write_bytes(PACKING[outer](PACKING[inner](b"text\n")))
    with pytest.raises(UserError, match="file: compressed twice; unpack it once$"):
        read_content(tmp_path / "file")


@pytest.mark.parametrize("packing", sorted(PACKING))
@pytest.mark.parametrize(
    "spoil", [lambda content: content[:-6], lambda content: content[:30] + b"damaged" + content[37:]]
)
@pytest.mark.parametrize("read", [read_content, lambda path: list(read_lattices(path))])
def test_damaged_compressed_files_are_refused(packing, spoil, read, tmp_path):
    content = "".join(f"u{n} \n0 1 1 1 0.{n},0.5\n1 0,0\n\n" for n in range(40)).encode()
    (tmp_path / "file").write_bytes(spoil(PACKING[packing](content)))
    with pytest.raises(UserError, match=f"file: damaged or truncated {packing} file"):
        read(tmp_path / "file")


def test_concatenated_streams_are_read(tmp_path):
    for compress in PACKING.values():
        assert unpack(compress(b"one ") + compress(b"two"), tmp_path) == b"one two"
        assert unpack(compress(b""), tmp_path) == b""


def test_missing_compression_library_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr("pyasr.io.content.lzma", None)
    (tmp_path / "file").write_bytes(lzma.compress(b"words"))
    with pytest.raises(
        UserError, match="file: compressed by xz, which this build of Python does not support; unpack it"
    ):
        read_content(tmp_path / "file")


def test_byte_order_mark_inside_text_is_reported_with_line(tmp_path):
    """Joined files have such marks."""
    (tmp_path / "lexicon.txt").write_bytes(MARK + b"a AH\n" + MARK + b"b B\n")
    with pytest.raises(UserError, match=r"lexicon.txt:2: the blank U\+FEFF"):
        read_lexicon(tmp_path / "lexicon.txt")
