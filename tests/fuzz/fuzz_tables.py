"""Tables, archives, lattices, audio and texts: small valid files and their readers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import soundfile
from data_dirs import make_data_dir
from fuzz_format import FIXTURES, Format, consume, files_of, kaldi_file
from graphs import random_graph, tid2pdf
from queen_toys import write_queen
from shorten_encoder import shortened_sphere
from toy_language import random_ngrams, write_arpa_text

sys.path.append(str(FIXTURES.parents[2] / "egs/amazon_queen/s5/local"))

from queen import QueenFile, read_texts  # noqa: E402

from pyasr.base.cli import options  # noqa: E402
from pyasr.cluster.runner.runner_config import read_runner_config  # noqa: E402
from pyasr.data.audio.audio_reading import read_audio  # noqa: E402
from pyasr.data.augmentation.sound_lists import SoundList  # noqa: E402
from pyasr.data.checks.validation import validate  # noqa: E402
from pyasr.data.tables.datadir import DataDir  # noqa: E402
from pyasr.data.tables.distortion import parse_table  # noqa: E402
from pyasr.data.transcripts.ctm import read_ctm  # noqa: E402
from pyasr.decode.lattices.compact_lattice import to_compact  # noqa: E402
from pyasr.decode.lattices.lattice_io import read_compact_lattices, read_lattices, write_lattices  # noqa: E402
from pyasr.decode.search.beam_search import Decoder  # noqa: E402
from pyasr.decode.search.decode_options import DecodeOptions  # noqa: E402
from pyasr.feats.inputs import InputOptions  # noqa: E402
from pyasr.feats.kaldi_options import kaldi_input  # noqa: E402
from pyasr.feats.options import MfccOptions  # noqa: E402
from pyasr.feats.transforms import transform_files  # noqa: E402
from pyasr.intake.lhotse import read_cuts, read_manifests, save_data_dir  # noqa: E402
from pyasr.io.ark import ArkWriter, load_all, read_ark, read_scp  # noqa: E402
from pyasr.io.content import read_content  # noqa: E402
from pyasr.io.int_vectors import job_archive_files, read_int_vectors  # noqa: E402
from pyasr.io.posteriors import read_posteriors  # noqa: E402
from pyasr.io.text_tables import read_numbers, read_table, utt2spk_table  # noqa: E402
from pyasr.lang.grammars.grammar_fst import read_grammar_fst  # noqa: E402
from pyasr.lang.lang_dirs.lang_dir import LangDir  # noqa: E402
from pyasr.lang.lexicons.dict_dir import read_dict_dir  # noqa: E402
from pyasr.lang.lexicons.lexicon import read_cmudict, read_lexicon  # noqa: E402
from pyasr.lang.lexicons.silence_probs import read_silence_probs  # noqa: E402
from pyasr.lang.ngrams.arpa import read_arpa  # noqa: E402
from pyasr.lang.symbols import SymbolTable  # noqa: E402

_LANG_PROPERTIES = (
    "phones",
    "words",
    "real_phones",
    "disambig_phones",
    "optional_silence",
    "oov",
    "sets",
    "extra_questions",
    "roots",
    "word_boundary",
    "align_lexicon",
    "lexicon",
    "pronunciation_ids",
)
_LANG_FILES = (
    "phones.txt",
    "words.txt",
    "oov.txt",
    "phones/roots.int",
    "phones/word_boundary.int",
    "phones/align_lexicon.int",
    "phones/align_lexicon.txt",
    "phones/sets.int",
    "phones/silence.int",
    "phones/optional_silence.int",
)
_LEXICON = "<unk> SPN\na AH\na EY\nman M AE N\nplan P L AE N\n"
_LEXICONP = "<unk> 1.0 SPN\na 1.0 AH\na 0.5 EY\nman 1 M AE N\n"
_DISTORTIONS = (
    'u1 {}\nu2 {"rir": "r.wav", "noises": [{"audio": "a.wav", "snr_db": 10.0, "at_s": 0.5, '
    '"rir": "s.wav"}]}\n'
)
_SILPROB = "<s> 0.3\n</s>_s 1.2\n</s>_n 0.9\noverall 0.2\n"
_LATTICE_FORMS = {
    "lat": (True, False),
    "lat_compact": (True, True),
    "lat_text": (False, False),
    "lat_compact_text": (False, True),
}
_DICT = {
    "lexicon.txt": _LEXICON,
    "silence_phones.txt": "SIL\nSPN\n",
    "nonsilence_phones.txt": "AH\nEY\nM\nAE\nN\nP\nL\n",
    "optional_silence.txt": "SIL\n",
    "extra_questions.txt": "SIL SPN\nAH EY AE\n",
}


def _text(content: str):
    return lambda path: path.write_text(content, encoding="utf-8")


def _matrices() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {f"utt-{i}": rng.standard_normal((i + 2, 3)).astype(np.float32) for i in range(3)}


def _ark(path: Path, compress: bool | str = False) -> None:
    with ArkWriter(path.with_suffix(".ark"), path.with_suffix(".scp"), compress) as writer:
        for key, matrix in _matrices().items():
            writer.write(key, matrix)


def _load_other(path: Path) -> dict[str, np.ndarray]:
    return load_all(path.with_suffix(".scp"))


def _lattices(path: Path, binary: bool, compact: bool) -> None:
    rng = np.random.default_rng(3)
    decoder = Decoder(random_graph(rng, 20, 60, 4), tid2pdf(4), DecodeOptions(acoustic_scale=0.1))
    made = ((f"utt-{i}", decoder.decode(-30 * rng.random((5 * i, 4)))) for i in range(1, 3))
    write_lattices(
        path, ((key, to_compact(lattice) if compact else lattice) for key, lattice in made), binary
    )


def _sound(path: Path, **keywords) -> None:
    time = np.arange(1600) / 8000
    soundfile.write(path, 0.2 * np.sin(2 * np.pi * 440 * time), 8000, **keywords)


def _shortened(path: Path, coding: str) -> None:
    """A shorten file with all commands: zero blocks, differences, linear prediction, dropped bits, a shorter
    last block."""
    samples = (2000 * np.sin(np.arange(1500) / 9) * (np.arange(1500) % 600 > 256)).astype(np.int16) & ~3
    path.write_bytes(
        shortened_sphere(
            samples, coding=coding, block=64, lpc=(2,), choice="turns", num_means=2, shifts=(0, 1, 2)
        )
    )


def _read_sound(path: Path):
    return read_audio(str(path), "rec")


def _data_dir(path: Path) -> None:
    if not (path.parent / "audio").exists():
        make_data_dir(path.parent, with_segments=True)


def _read_data_dir(path: Path) -> list:
    data = DataDir(path.parent)
    return [data.utterances, data.segments, data.durations, data.text, data.wav_scp]


def _validate(path: Path) -> list[str]:
    return list(map(str, validate(path.parent)))


def _manifests(path: Path) -> None:
    recording = {
        "id": "r1",
        "sources": [{"type": "file", "channels": [0, 1], "source": "r1.wav"}],
        "duration": 10.0,
    }
    supervision = {
        "id": "u1",
        "recording_id": "r1",
        "start": 0.5,
        "duration": 2.25,
        "channel": [0],
        "text": "a",
        "speaker": "s1",
        "gender": "f",
    }
    _text(json.dumps(recording) + "\n")(path.with_name("recordings.jsonl"))
    _text("".join(json.dumps(supervision | {"id": name}) + "\n" for name in ("u1", "u2")))(
        path.with_name("supervisions.jsonl")
    )


def _cuts(path: Path, as_array: bool = False) -> None:
    recording = {
        "id": "r1",
        "sources": [{"type": "file", "channels": [0, 1], "source": "r1.wav"}],
        "duration": 10.0,
    }
    cuts = [
        {
            "id": f"c{i}",
            "start": 1.0,
            "duration": 2.0,
            "channel": 0,
            "type": "MonoCut",
            "recording": recording,
            "supervisions": [{"id": f"u{i}", "start": 0.5, "duration": 1.25, "text": "a", "speaker": "s1"}],
        }
        for i in range(2)
    ]
    _text(json.dumps(cuts, indent=2) if as_array else "".join(json.dumps(cut) + "\n" for cut in cuts))(path)


def _read_manifests(path: Path) -> list[str]:
    is_cuts = path.stem == "cuts"
    found = (
        read_cuts(path)
        if is_cuts
        else read_manifests(path.with_name("recordings.jsonl"), path.with_name("supervisions.jsonl"))
    )
    out = path.parent / "data"
    out.mkdir(exist_ok=True)
    save_data_dir(found, out)
    return found.problems


def _dict_dir(path: Path) -> None:
    for name, content in _DICT.items():
        _text(content)(path.parent / name)


def _silence_probs(path: Path) -> None:
    _text("<unk> 1 0.2 1 1 SPN\na 1 0.3 0.9 1.1 AH\na 0.5 0.2 1 1 EY\n")(path.parent / "lexiconp_silprob.txt")
    _text(_SILPROB)(path.parent / "silprob.txt")


def _read_lang(directory: Path) -> list:
    lang = LangDir(directory)
    return [getattr(lang, name) for name in _LANG_PROPERTIES]


def _config(path: Path):
    return options.parse(MfccOptions, ["--config", str(path)])


def _input_options(path: Path) -> None:
    InputOptions(deltas=2).save(path.parent)


def _load_input(path: Path):
    return InputOptions.load(path.parent)


ARCHIVES = [
    Format("float.ark", _ark, consume(read_ark, _load_other)),
    Format("compressed.ark", lambda path: _ark(path, True), consume(read_ark, _load_other)),
    Format("feats.scp", _ark, load_all, names=False),
    *(kaldi_file(f"feats_{kind}.ark", read_ark) for kind in ("cm", "cm2", "cm3", "double", "text")),
    kaldi_file("vectors.ark", read_ark),
    kaldi_file("ints.ark", read_int_vectors),
    kaldi_file("ints.txt", read_int_vectors),
    kaldi_file("post.ark", read_posteriors),
    kaldi_file("post.txt", read_posteriors),
    *(
        Format(
            f"{name}.ark",
            lambda path, form=form: _lattices(path, *form),
            consume(read_lattices, read_compact_lattices),
        )
        for name, form in _LATTICE_FORMS.items()
    ),
    Format("lat.gz", lambda path: _lattices(path, True, True), consume(read_lattices)),
]
AUDIO = [
    Format("a.wav", _sound, _read_sound),
    Format("float.wav", lambda path: _sound(path, subtype="FLOAT"), _read_sound),
    Format("a.flac", _sound, _read_sound),
    Format("a.sph", lambda path: _sound(path, format="NIST", subtype="PCM_16"), _read_sound),
    *(
        Format(f"{coding}_shorten.sph", lambda path, coding=coding: _shortened(path, coding), _read_sound)
        for coding in ("ulaw", "pcm")
    ),
    Format("a.mp3", _sound, _read_sound),
    Format("a.ogg", _sound, _read_sound),
    Format("queen.1c", write_queen, consume(lambda path: read_texts(QueenFile(path)))),
]


def _read_grammar(path: Path):
    return read_grammar_fst(
        read_content(path), path, SymbolTable.of(["<eps>", "a", "b", "c", "#0", "<s>", "</s>"])
    )


TEXTS = [
    Format("symbols.txt", _text("<eps> 0\na 1\nb 2\nc 3\n#0 4\n"), SymbolTable.read),
    Format("lexicon.txt", _text(_LEXICON), read_lexicon),
    Format("lexiconp.txt", _text(_LEXICONP), read_lexicon),
    Format("cmu.dict", _text("a AH0\na(2) EY1\nman M AE1 N # a comment\n"), read_cmudict),
    Format("dict/lexiconp_silprob.txt", _silence_probs, lambda path: read_silence_probs(path.parent)),
    Format("dict/silprob.txt", _silence_probs, lambda path: read_silence_probs(path.parent)),
    *(Format(f"dict/{name}", _dict_dir, lambda path: read_dict_dir(path.parent)) for name in _DICT),
    *files_of(FIXTURES / "lang", _LANG_FILES, _read_lang),
    Format(
        "lm.arpa", lambda path: write_arpa_text(path, random_ngrams(0, ["a", "b", "c"], (0, 8, 8))), read_arpa
    ),
    Format("grammar.txt", _text("0 1 a 0.5\n1 2 b\n1 1 c 1.5\n2 0 <eps> 1e-1\n2 0.25\n"), _read_grammar),
    *(
        Format(f"data/{name}", _data_dir, consume(_read_data_dir))
        for name in ("utt2spk", "text", "segments", "wav.scp", "utt2dur")
    ),
    *(Format(f"validated/{name}", _data_dir, _validate, refuses=False) for name in ("utt2spk", "segments")),
    *(Format(f"lhotse/{name}.jsonl", _manifests, _read_manifests) for name in ("recordings", "supervisions")),
    Format("lhotse/cuts.jsonl", _cuts, _read_manifests),
    Format("lhotse/cuts.json", lambda path: _cuts(path, as_array=True), _read_manifests),
    Format("utt2num_frames", _text("u1 20\nu2 1\nu3 77\n"), lambda path: read_numbers(path, int)),
    Format("utt2spk", _text("u1 s1\nu2 s1\nu3 s2\n"), utt2spk_table),
    Format("reco2distortion", _text(_DISTORTIONS), lambda path: parse_table(read_table(path), path)),
    Format(
        "rir_list",
        _text("--rir-id 1 --room-id r1 --rt-60 0.3 a.wav\nkey b.wav\n--probability=0.5 c.wav\n"),
        SoundList,
    ),
    Format("ctm", _text("tape A 0.50 0.25 word 0.9000\n;; a comment\ntape A 0.75 0.25 word\n"), read_ctm),
    Format("table.scp", _text("u1 /a/b.ark:20\nu2 sph2pipe x.sph |\n"), read_scp),
    Format("model/input.json", _input_options, _load_input),
    Format(
        "model/cmvn_opts",
        _text("--norm-means=true --norm-vars=false\n"),
        lambda path: kaldi_input(path.parent),
    ),
    Format(
        "model/num_jobs",
        _text("4\n"),
        lambda path: (job_archive_files(path.parent), transform_files(path.parent)),
    ),
    Format(
        "mfcc.conf",
        _text("--num-ceps=13 # a comment\n--use-energy=false\n--window-type=hamming\n--low-freq=20\n"),
        _config,
    ),
    Format(
        "queue.conf",
        _text("command qsub -v PATH\noption mem=* -l mem=$0\ndefault gpu=0\noption gpu=0\n"),
        read_runner_config,
    ),
]
