"""The files of a recipe directory for a user's own corpus: run.sh with its options, configuration files,
links to the toolkit."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pyasr
from pyasr.base.cli.options import to_json
from pyasr.base.cli.step import is_forced
from pyasr.base.errors import UserError
from pyasr.base.files import durable
from pyasr.base.outputs.output import atomic_write
from pyasr.base.outputs.written_files import WrittenFiles
from pyasr.intake.own.findings import has_several_channels
from pyasr.intake.own.preparing import CorpusOptions, Prepared, choose_rate
from pyasr.intake.own.reading.own_corpus import PARTS
from pyasr.intake.own.sizes import Sizes, fmllr_min_count, lm_min_counts, lm_order, sizes_for
from pyasr.lang.pronouncing.prepare_dict import CMUDICT, LETTERS

ROOT = Path(pyasr.__file__).resolve().parents[1]
RECORD = ".new_recipe"
_TEMPLATE = Path(__file__).with_name("template")
_RUNNERS = ROOT / "egs/toy/s5/cmd.sh"
_SOURCE = Path("/")  # the contents depend on the corpus, whose location may change
_LINKS = ("steps", "utils")
_MAX_JOBS = 16
_GB_PER_HOUR, _GB_AT_LEAST = 0.35, 0.3
_COLUMN = 25  # column of the comments of options


def recipe_files(
    prepared: Prepared, sources: list[Path], options: CorpusOptions, cores: int
) -> dict[str, str]:
    """{name: content} of the files of the recipe."""
    row = sizes_for(prepared.hours("train"))
    return {
        "run.sh": _run_sh(prepared, sources, row, cores),
        "cmd.sh": _RUNNERS.read_text(encoding="utf-8"),
        "path.sh": (_TEMPLATE / "path.sh").read_text(encoding="utf-8"),
        "conf/corpus.conf": _corpus_conf(prepared, options),
        "conf/mfcc.conf": _mfcc_conf(prepared),
        "conf/dnn.conf": _dnn_conf(row),
    }


def write_recipe(folder: Path, files: dict[str, str]) -> None:
    """Write the files and links into `folder`.

    Raises UserError, before anything is written, for a folder with other content, and for a file that the
    user has changed, unless --force is given.
    """
    check_folder(folder, files)
    (folder / "conf").mkdir(parents=True, exist_ok=True)
    written = WrittenFiles(folder, RECORD)
    for name, content in files.items():
        written.add(folder / name, _SOURCE, content.encode())
        with atomic_write(folder / name) as file:
            file.write(content)
    (folder / "run.sh").chmod(0o755)
    for name in _LINKS:
        _link(folder / name, ROOT / name)
    durable.sync(folder)


def check_folder(folder: Path, files) -> None:
    """Raise UserError unless `folder` is new, or was written by this tool and its files are unchanged."""
    if not os.path.lexists(folder):
        return
    if not folder.is_dir() or any(folder.iterdir()) and not (folder / RECORD).exists():
        raise UserError(f"{folder} exists and was not written by this tool; give the name of a new directory")
    written = WrittenFiles(folder, RECORD)
    changed = [
        name for name in files if (folder / name).exists() and not written.is_own(folder / name, _SOURCE)
    ]
    if changed and not is_forced():
        raise UserError(
            f"{folder}/{changed[0]} was changed after it was written; give another directory, or --force to "
            "replace it"
        )


def _link(place: Path, target: Path) -> None:
    """Create a link: relative within the toolkit, which may be moved as a whole, else absolute."""
    inside = place.resolve().is_relative_to(ROOT) or place.parent.resolve().is_relative_to(ROOT)
    message = os.path.relpath(target, place.parent.resolve()) if inside else str(target)
    if place.is_symlink() and os.readlink(place) == message:
        return
    place.unlink(missing_ok=True)
    place.symlink_to(message)


def _run_sh(prepared: Prepared, sources: list[Path], row: Sizes, cores: int) -> str:
    corpus = prepared.corpus
    speakers = len({one.speaker for one in corpus.utterances})
    found = {
        "TITLE": (
            f"{corpus.hours:.2f} hours of speech, {len(corpus.utterances)} utterances of {speakers} "
            "speaker(s)."
        ),
        "CHOICES": "\n".join(_choice(*choice) for choice in _choices(prepared, row, cores)),
        "DISK_GB": f"{_GB_AT_LEAST + _GB_PER_HOUR * corpus.hours:.1f}",
        "SOURCES": " ".join(shlex.quote(str(source.absolute())) for source in sources),
    }
    text = (_TEMPLATE / "run.sh").read_text(encoding="utf-8")
    for name, value in found.items():
        text = text.replace(f"@{name}@", value)
    return text


def _choice(name: str, value: object, message: str) -> str:
    """A line that declares an option of the recipe."""
    text = str(value)
    quoted = f'"{text}"' if " " in text and not set(text) & set('"$`\\') else shlex.quote(text)
    return f"{f'{name}={quoted}':<{_COLUMN}} # {message}"


def _choices(prepared: Prepared, row: Sizes, cores: int) -> list[tuple[str, object, str]]:
    words, hours = prepared.counts("train").total(), prepared.hours("train")
    jobs = max(1, min(cores, _MAX_JOBS, *(len(part) for part in prepared.split.parts.values())))
    dictionary = prepared.language.dictionary
    source = {CMUDICT: "CMUdict, because the texts are English", LETTERS: "the letters of the words"}.get(
        dictionary, "this lexicon"
    )
    sizes = f"for {hours:.2f} hours of training speech"
    least_frames = fmllr_min_count(prepared.seconds_of_speakers(PARTS[1:]).values())
    return [
        ("data", "data", "directory of the prepared corpus"),
        ("dictionary", dictionary, f"pronunciations: {source}"),
        (
            "lm_order",
            lm_order(words),
            f"longest n-gram of the language model, for {words} words of training text",
        ),
        ("lm_min_counts", lm_min_counts(words), "minimum counts of its bigrams and trigrams"),
        ("mono_gauss", row.mono, f"Gaussians of monophones, {sizes}"),
        ("tri1_leaves", row.tri1[0], "tied states of triphones on deltas"),
        ("tri1_gauss", row.tri1[1], "their Gaussians"),
        ("tri2_leaves", row.tri2[0], "tied states of triphones on LDA+MLLT"),
        ("tri2_gauss", row.tri2[1], "their Gaussians"),
        ("tri3_leaves", row.tri3[0], "tied states of speaker-adapted triphones, and outputs of the network"),
        ("tri3_gauss", row.tri3[1], "their Gaussians"),
        ("fmllr_min_count", least_frames, "minimum number of frames for the adaptation of a speaker"),
        (
            "decoded",
            "mono tri1 tri2",
            "further decoded systems, in addition to tri3 and the network (any of these) (may be empty)",
        ),
        ("nj", jobs, "parallel jobs of features, GMMs and decoding (at least 1)"),
        ("num_ranks", min(cores, 2) if cores < 8 else 4, "MPI ranks of the network's training (at least 1)"),
    ]


def _corpus_conf(prepared: Prepared, options: CorpusOptions) -> str:
    """The options for reading and splitting that have a value, with the chosen language."""
    groups = [part for part in to_json(options).values() if isinstance(part, dict)]
    values = {name: value for part in groups for name, value in part.items() if name != "type"}
    chosen = {CMUDICT: "english", LETTERS: "letters"}.get(prepared.language.dictionary, values["language"])
    lexicon = options.language.lexicon
    values |= {"language": chosen, "lexicon": str(lexicon.absolute()) if lexicon else None}
    texts = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in values.items()
        if value is not None
    }
    lines = [f"--{name.replace('_', '-')}={text}" for name, text in texts.items()]
    return "\n".join(["# how the corpus is read and split (utils/prepare_own_data.py --help)", *lines]) + "\n"


def _mfcc_conf(prepared: Prepared) -> str:
    rate = choose_rate(prepared.corpus)
    rates = {recording.rate for recording in prepared.corpus.recordings.values()}
    lines = [
        "# 13 cepstra for GMMs",
        f"--sample-frequency={rate}",
        "--use-energy=false",
        "--dither=1.0    # without dither, digital silence would be far from all speech",
    ]
    if any(found > rate or not found for found in rates):
        lines.append("--allow-downsample=true")
    if any(found < rate for found in rates):
        lines.append("--allow-upsample=true")
    if has_several_channels(prepared):
        lines.append("--channel=0    # left channel of recordings with several")
    return "\n".join(lines) + "\n"


def _dnn_conf(row: Sizes) -> str:
    return f"""\
# {row.layers} hidden layers of {row.units} rectifiers on 11 frames of 40 fMLLR features
--hidden-layers={row.layers}
--hidden-dim={row.units}
--dropout={row.dropout:g}
--cmvn=none    # fMLLR features are normalised
--minibatch={row.minibatch}
--schedule=exponential
--num-epochs={row.epochs}
--final-factor=0.03
--learning-rate={row.learning_rate:g}    # of one rank; scaled linearly with the number of ranks
--max-change=2.0
"""
