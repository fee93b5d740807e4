"""A decode directory with its data, language and model directories, as needed to align its lattices with
words or phones in jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.data.tables.datadir import DataDir
from pyasr.decode.align.align_lexicon import AlignLexicon, align_lexicon
from pyasr.decode.ctc.ctc_alignment import UnitRuns, with_blanks
from pyasr.decode.lattice_jobs.lattice_dir import (
    archives,
    check_words,
    job_archives,
    read_of_data,
    words_file,
)
from pyasr.decode.lattices.compact_lattice import CompactLattice
from pyasr.decode.lattices.lattice import best_path
from pyasr.hmm.model.model_file import MODEL, read_transitions, subsampling_files
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.trees.phone_segments import check_decoded
from pyasr.lang.grammars.ctc_graph import BLANK_TID
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.lang.lang_dirs.subwords import UNITS, UNITS_DIR, read_units

_UNITS = f"{UNITS_DIR}/{UNITS}"
_NUM_CHECKED = 100  # number of lattices per job that are checked against the model


@dataclass(frozen=True)
class Decoded:
    """The lattices of `decode_dir`; job J of `num_jobs` processes every num_jobs-th archive."""

    data: Path
    lang: Path
    decode_dir: Path
    model_dir: Path
    num_jobs: int

    @staticmethod
    def of(data: Path, lang: Path, decode_dir: Path, model_dir: Path | None, max_jobs: int) -> Decoded:
        """Build it with one job per archive, at most `max_jobs`; model_dir None: the parent of `decode_dir`.

        Raises UserError if the words of the lattices have different ids in `lang`.
        """
        num_jobs = min(max_jobs, len(archives(decode_dir)))
        check_words(decode_dir, lang)
        return Decoded(data, lang, decode_dir, model_dir or decode_dir.parent, num_jobs)

    @property
    def model(self) -> Path:
        """The path of the transition model or, for a CTC network, of units.txt. Raises UserError if neither
        exists."""
        for name in (MODEL, _UNITS):
            if (self.model_dir / name).exists():
                return self.model_dir / name
        raise UserError(f"{self.model_dir}: {self._advice_without_model()}")

    def _advice_without_model(self) -> str:
        """The part of the error message after the name of a directory without a model."""
        if (self.model_dir / "final.nnet").exists():
            return (
                f"a network without {MODEL} or, for CTC, {_UNITS}; copy the file from the directory "
                "where the network was trained"
            )
        missing = f"no acoustic model, neither {MODEL} nor a CTC network's {_UNITS}"
        if self.model_dir == self.decode_dir.parent:
            return (
                f"{missing}, in the directory above the lattices; give the directory of their model as "
                "--model-dir"
            )
        return f"{missing}; give the directory of the model of the lattices as --model-dir"

    def files(self) -> list[Path]:
        """All input files. Raises UserError if there is no model."""
        words = dict.fromkeys([self.lang / "words.txt", words_file(self.decode_dir, self.lang)])
        lang = [*words, self.lang / "phones/align_lexicon.int"]
        return [
            self.data / "utt2spk",
            *lang,
            self.model,
            *subsampling_files(self.model_dir),
            *archives(self.decode_dir),
        ]

    def read_model(self) -> tuple[TransitionModel | UnitRuns, AlignLexicon]:
        """(transition model or units, lexicon) for the alignment."""
        lexicon = align_lexicon(LangDir(self.lang).align_lexicon)
        if self.model.name == UNITS:
            return UnitRuns.of(len(read_units(self.model.parent))), with_blanks(lexicon, BLANK_TID)
        return read_transitions(self.model), lexicon

    def lattices(
        self, job: int, trans: TransitionModel | UnitRuns, acoustic_scale: float = 0.1
    ) -> Iterator[tuple[Path, str, CompactLattice]]:
        """(archive, utterance, lattice) of a job. Raises UserError for an utterance that is not in the data
        directory, and if one of the first lattices is from another model than `trans`."""
        data, number = DataDir(self.data), 0
        for archive in job_archives(self.decode_dir, self.num_jobs, job):
            for number, (utterance, lattice) in enumerate(
                read_of_data(archive, data, acoustic_scale), number + 1
            ):
                if number <= _NUM_CHECKED:
                    _check_model(lattice, trans, acoustic_scale, f"{archive}: {utterance}")
                yield archive, utterance, lattice


def _check_model(
    lattice: CompactLattice, trans: TransitionModel | UnitRuns, acoustic_scale: float, name: str
) -> None:
    """Raise UserError unless the best path, if any, is a path through the model's HMMs; CTC units may follow
    each other in any order."""
    path = best_path(lattice, acoustic_scale)
    if path and isinstance(trans, TransitionModel):
        check_decoded({name: path.tids}, trans, "give the model of the lattices as --model-dir")
