#!/usr/bin/env python3
"""Find LibriSpeech's published lexicon and language models.

Reads   LM_DIR/**/librispeech-lexicon.txt, 3-gram.pruned.3e-7.arpa.gz (tgsmall), 3-gram.pruned.1e-7.arpa.gz
        (tgmed), 3-gram.arpa.gz (tglarge), 4-gram.arpa.gz (fglarge)
Writes  OUT/lexicon/lexicon.txt, OUT/MODEL/lm.arpa.gz, a link

    local/get_lms.py --rescoring "tgmed tglarge" corpora/librispeech-lm data/local/lm
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import make_part, run_step
from pyasr.base.errors import UserError
from pyasr.corpora.discs import places_of
from pyasr.corpora.librispeech.models import LEXICON, RESCORING_MODELS, find_files, read_lexicon
from pyasr.lang.symbols import write_lines


@dataclass(frozen=True)
class GetLms:
    lm_dir: str = argument("directories with the files, separated by ':'")
    out: Path = argument("directory of the lexicon and the language models")
    rescoring: str = option(
        " ".join(RESCORING_MODELS), "language models in addition to tgsmall, separated by blanks"
    )


@dataclass(frozen=True)
class Published:
    """The inputs of one output."""

    name: str = argument("lexicon, or a language model")


def main(options: GetLms) -> None:
    rescoring = options.rescoring.split()
    if unknown := set(rescoring) - set(RESCORING_MODELS):
        raise UserError(
            f"--rescoring: '{min(unknown)}' is none of {' '.join(RESCORING_MODELS)}; give some of these"
        )
    for name, path in find_files(
        places_of(options.lm_dir, "LibriSpeech's lexicon and language models", "--lm-dir"), rescoring
    ).items():
        make_part(
            Published(name),
            options.out / name,
            [path],
            write_lexicon(path) if name == LEXICON else link(path),
        )


def write_lexicon(path: Path):
    def write(out: Path) -> None:
        write_lines(
            out / "lexicon.txt",
            (f"{word} {' '.join(phones)}" for word, _, phones in read_lexicon(path).rows()),
        )

    return write


def link(path: Path):
    return lambda out: (out / "lm.arpa.gz").symlink_to(path.resolve())


if __name__ == "__main__":
    run_step(GetLms, main, __doc__)
