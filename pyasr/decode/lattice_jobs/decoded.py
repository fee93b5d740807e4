"""A decode directory with what was decoded and by what: what it takes to align its lattices with words or phones, in jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.data.tables.datadir import DataDir
from pyasr.decode.align.align_lexicon import AlignLexicon, align_lexicon
from pyasr.decode.ctc.ctc_alignment import UnitRuns, with_blanks
from pyasr.decode.lattice_jobs.lattice_dir import archives, check_words, job_archives, read_of_data, words_file
from pyasr.decode.lattices.compact_lattice import CompactLattice
from pyasr.decode.lattices.lattice import best_path
from pyasr.hmm.model.model_file import MODEL, read_transitions, subsampling_files
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.trees.phone_segments import check_decoded
from pyasr.lang.grammars.ctc_graph import BLANK_TID
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.lang.lang_dirs.subwords import UNITS, UNITS_DIR, read_units

_UNITS = f"{UNITS_DIR}/{UNITS}"
_NUM_CHECKED = 100  # lattices of a job, whether they are of the model


@dataclass(frozen=True)
class Decoded:
    """The lattices of `decode_dir`, of which job J of `num_jobs` takes every num_jobs-th archive."""

    data: Path
    lang: Path
    decode_dir: Path
    model_dir: Path
    num_jobs: int

    @staticmethod
    def of(data: Path, lang: Path, decode_dir: Path, model_dir: Path | None, max_jobs: int) -> Decoded:
        """With a job for each archive, but no more than `max_jobs`; the model is in the directory above unless given.

        Raises UserError where the lattices' words have other numbers in `lang`.
        """
        num_jobs = min(max_jobs, len(archives(decode_dir)))
        check_words(decode_dir, lang)
        return Decoded(data, lang, decode_dir, model_dir or decode_dir.parent, num_jobs)

    @property
    def model(self) -> Path:
        """The transition model, or what a CTC network has instead. Raises UserError where there is neither."""
        for name in (MODEL, _UNITS):
            if (self.model_dir / name).exists():
                return self.model_dir / name
        raise UserError(f"{self.model_dir}: {self._advice_without_model()}")

    def _advice_without_model(self) -> str:
        """The rest of the sentence on a directory that has no model."""
        if (self.model_dir / "final.nnet").exists():
            return f"a network without {MODEL} or, of CTC, {_UNITS}; copy the file there from where the network was trained"
        told = f"no acoustic model, neither {MODEL} nor a CTC network's {_UNITS}"
        if self.model_dir == self.decode_dir.parent:
            return f"{told}; it is looked for in the directory above the lattices, give that of the model which made them by --model-dir"
        return f"{told}; give the directory of the model that made the lattices as --model-dir"

    def files(self) -> list[Path]:
        """All that is read. Raises UserError where there is no model."""
        words = dict.fromkeys([self.lang / "words.txt", words_file(self.decode_dir, self.lang)])
        lang = [*words, self.lang / "phones/align_lexicon.int"]
        return [self.data / "utt2spk", *lang, self.model, *subsampling_files(self.model_dir), *archives(self.decode_dir)]

    def read_model(self) -> tuple[TransitionModel | UnitRuns, AlignLexicon]:
        """What words and phones are made of."""
        lexicon = align_lexicon(LangDir(self.lang).align_lexicon)
        if self.model.name == UNITS:
            return UnitRuns.of(len(read_units(self.model.parent))), with_blanks(lexicon, BLANK_TID)
        return read_transitions(self.model), lexicon

    def lattices(self, job: int, trans: TransitionModel | UnitRuns,
                 acoustic_scale: float = 0.1) -> Iterator[tuple[Path, str, CompactLattice]]:  # fmt: skip
        """(archive, utterance, lattice) of a job. Raises UserError for an utterance that is not in the data directory, and where one of the
        first lattices is of another model than `trans`."""
        data, number = DataDir(self.data), 0
        for archive in job_archives(self.decode_dir, self.num_jobs, job):
            for number, (utterance, lattice) in enumerate(read_of_data(archive, data, acoustic_scale), number + 1):
                if number <= _NUM_CHECKED:
                    _check_model(lattice, trans, acoustic_scale, f"{archive}: {utterance}")
                yield archive, utterance, lattice


def _check_model(lattice: CompactLattice, trans: TransitionModel | UnitRuns, acoustic_scale: float, name: str) -> None:
    """Raises UserError unless the best path, if any, goes through the model's HMMs; units of CTC may follow each other as they like."""
    path = best_path(lattice, acoustic_scale)
    if path and isinstance(trans, TransitionModel):
        check_decoded({name: path.tids}, trans, "give the model that the lattices were decoded with by --model-dir")
