"""The input of a model from a data directory: features after CMVN, deltas, splicing (`input.json` of the
model) and transforms.

    reader = FeatureReader(Path("data/train"), InputOptions(deltas=2))
    for utt in reader.keys:
        x = reader[utt]  # float32 (T, 39)
    # with fMLLR
    adapted = open_features(Path("data/test"), Path("exp/tri3"), Path("exp/tri3/decode_test"))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from pyasr.base.cli import options
from pyasr.base.cli.option_uses import unless_is, unless_set
from pyasr.base.cli.option_values import check
from pyasr.base.cli.options import group, option
from pyasr.base.errors import UserError
from pyasr.data.parts.job_parts import JobPart
from pyasr.feats.cmvn import SlidingOptions, apply_cmvn, cmvn_stats, normaliser, sliding_cmvn
from pyasr.feats.deltas import add_deltas, splice
from pyasr.feats.kaldi_options import OPTION_FILES, kaldi_input
from pyasr.feats.packed_tables import PackedTables, save_tables
from pyasr.feats.transforms import MATRIX_FILE, apply_transform, read_matrix, read_transforms
from pyasr.io.ark import ArkReader, scp_table
from pyasr.io.keys import Keys, distinct, first_keys
from pyasr.io.tables import Table
from pyasr.io.text_tables import number_table, utt2spk_table

INPUT_FILE = "input.json"
_MAX_NORMALISERS = 10_000  # in memory; utterances of a speaker are read consecutively
INPUT_TABLES = ("feats.scp", "utt2spk", "cmvn.scp")
_MAKERS = {
    "feats.scp": "run steps/make_mfcc.py {} first",
    "utt2spk": "run utils/validate_data_dir.py {} first",
    "cmvn.scp": (
        "run steps/compute_cmvn.py {} first, or train with --cmvn none on features that are already "
        "normalised (fMLLR, streams)"
    ),
}


@dataclass(frozen=True)
class InputOptions:
    """Conversion of features to the input of a model. Training saves it in the model's directory; alignment
    and decoding read it."""

    heading = "input"

    cmvn: str = option(
        "speaker", "unit of cepstral mean normalisation", choices=("speaker", "utterance", "sliding", "none")
    )
    norm_vars: bool = option(False, "normalise the variances, too", only=unless_is("cmvn", "none"))
    sliding: SlidingOptions = group(SlidingOptions)
    deltas: int = option(0, "order of the appended time derivatives; 0: none", minimum=0, maximum=4)
    splice_left: int = option(
        0, "number of frames of left context to append", minimum=0, maximum=1000, only=unless_set("network")
    )
    splice_right: int = option(
        0, "number of frames of right context to append", minimum=0, maximum=1000, only=unless_set("network")
    )

    def dim(self, feat_dim: int) -> int:
        """Columns of the input for features of `feat_dim` columns."""
        return feat_dim * (self.deltas + 1) * (self.splice_left + 1 + self.splice_right)

    def unspliced(self) -> InputOptions:
        """Options of the features before splicing. Training asks for them in two places: for networks whose
        layers splice (`TrainingStep.rank_input`), and for stores, which splice (`frame_reader`)."""
        return replace(self, splice_left=0, splice_right=0)

    def normalised(self) -> InputOptions:
        """Options of the features before deltas and splicing, to which `extend` adds both."""
        return replace(self.unspliced(), deltas=0)

    def normalise(
        self, features: np.ndarray, of_speaker: tuple[np.ndarray, np.ndarray | None] | None = None
    ) -> np.ndarray:
        """Features (T, D) after CMVN; `of_speaker`: the normaliser of the speaker if `cmvn` is speaker."""
        if self.cmvn == "none":
            return features
        if self.cmvn == "sliding":
            return sliding_cmvn(features, self.sliding, self.norm_vars)
        if self.cmvn == "speaker":
            assert of_speaker is not None
            return apply_cmvn(features, *of_speaker)
        return apply_cmvn(features, *normaliser(cmvn_stats(features), self.norm_vars))

    def extend(self, features: np.ndarray) -> np.ndarray:
        """Normalised features (T, D) with deltas and splicing: float32 (T, dim)."""
        return splice(add_deltas(features, self.deltas), self.splice_left, self.splice_right)

    def save(self, model_dir: Path) -> None:
        """Write MODEL_DIR/input.json, which `load` reads."""
        options.save(Path(model_dir) / INPUT_FILE, self)

    @staticmethod
    def load(model_dir: Path) -> InputOptions:
        """The input options of a model directory; for a directory made by Kaldi, without input.json, from its
        option files."""
        path = Path(model_dir) / INPUT_FILE
        if path.exists():
            return options.load(path, (InputOptions,))
        found = InputOptions(**kaldi_input(model_dir))
        check(found, str(model_dir))
        return found


def input_option_files(model_dir: Path) -> list[Path]:
    """The files that `InputOptions.load` and `open_features` read, for the fingerprints of a stage output."""
    names = (INPUT_FILE,) if (Path(model_dir) / INPUT_FILE).exists() else OPTION_FILES
    return [path for path in (Path(model_dir) / name for name in (*names, MATRIX_FILE)) if path.exists()]


def input_tables(data: Path, inputs: InputOptions) -> list[Path]:
    """The tables of a data directory that `FeatureReader` reads, for the fingerprints of a stage output.
    Raises UserError for one that is missing."""
    names = ("feats.scp", "utt2spk", *(["cmvn.scp"] if inputs.cmvn == "speaker" else []))
    return [_existing(Path(data) / name) for name in names]


class FeatureReader:
    """The input matrices of a data directory, by utterance.

    `keys`: utterances in the order of feats.scp. Reading in this order opens each archive once. Not
    thread-safe.

    matrix      transform of all frames after splicing (LDA+MLLT), or None
    transforms  {speaker: matrix} applied after that (fMLLR), or None
    tables      tables of utterances that replace the files of `data`; None: the files
    part        part of the utterances, whose tables are read instead of the complete ones
    """

    def __init__(
        self,
        data: Path,
        options: InputOptions,
        matrix: np.ndarray | None = None,
        transforms: dict[str, np.ndarray] | None = None,
        tables: PackedTables | None = None,
        part: JobPart | None = None,
    ):
        self.data = Path(data)
        self.options = options
        self.matrix = matrix
        self.transforms = transforms
        self.part = part
        self._reader = ArkReader()
        self._normalisers: dict[str, tuple] = {}
        self._table: Mapping[str, str]
        self._utt2spk: Mapping[str, str]
        self._cmvn: Mapping[str, str]
        self._num_frames: Mapping[str, int] | None = None
        if tables is None:
            self._read_tables()
        else:
            self._table, self._utt2spk, self._cmvn = tables.places, tables.speakers, tables.cmvn
            self.keys, self._num_frames, self._columns = tables.keys, tables.num_frames, tables.columns

    def _read_tables(self) -> None:
        """Read the tables of the data directory or of the part."""
        self._table = scp_table(self._file("feats.scp"))
        self.keys = Keys.by_line(self._table)
        self._utt2spk = self.part.directory().utt2spk if self.part else utt2spk_table(self._file("utt2spk"))
        self._cmvn = scp_table(self._file("cmvn.scp")) if self.options.cmvn == "speaker" else {}

    def _file(self, name: str) -> Path:
        return _existing(self.part.directory().file(name) if self.part else self.data / name)

    def save_tables(self, path: Path, keys: Sequence[str], num_frames: Iterable[int], cmvn: str) -> None:
        """Write the tables of the utterances `keys`, with these lengths, for `PackedTables`. An utterance
        without features raises UserError when it is read.

        cmvn  as in the options of the later readers
        """
        statistics = scp_table(_existing(self.data / "cmvn.scp")) if cmvn == "speaker" else {}
        save_tables(path, keys, self._table, self._utt2spk, num_frames, statistics, self._columns)

    def has(self, utt: str) -> bool:
        """Whether an utterance has features."""
        return utt in self._table

    def speaker(self, utt: str) -> str:
        """The speaker of an utterance. Raises UserError if utt2spk lacks it."""
        try:
            return self._utt2spk[utt]
        except KeyError:
            found = f"no line for utterance {utt} of feats.scp"
            raise UserError(f"{self.data}/utt2spk: {found}; run utils/fix_data_dir.py {self.data}") from None

    @property
    def utterances(self) -> Sequence[str]:
        """The utterances of the data directory, in the order of utt2spk, with or without features."""
        return Keys.by_line(self._utt2spk) if isinstance(self._utt2spk, Table) else list(self._utt2spk)

    @cached_property
    def _originals(self) -> Mapping[str, str]:
        path = self.data / "utt2uniq"
        return Table.read(path) if path.exists() else {}

    @cached_property
    def _first_copies(self) -> Mapping[str, str]:
        """{original utterance: its first copy; parts of it under its name come first}"""
        originals = self._originals
        return first_keys(originals, str.startswith) if isinstance(originals, Table) and originals else {}

    def original(self, utt: str) -> tuple[str, str]:
        """(utterance, speaker) of the original if `utt` is a copy at another speed, in noise or in a room, by
        utt2uniq; else its own.

        If the original is missing, the speaker of its first copy represents all copies.
        """
        name = self._originals.get(utt, utt)
        return name, self._utt2spk.get(name) or self.speaker(self._first_copies.get(name, utt))

    def num_frames(self, utt: str) -> int:
        """Number of frames of `utt`, from utt2num_frames if that exists."""
        known_frames = self._num_frames
        if known_frames is None:
            path = self.data / "utt2num_frames"
            known_frames = self._num_frames = number_table(path, int) if path.exists() else {}
        if (known := known_frames.get(utt)) is not None:
            return known
        return self._counted_frames(utt)

    def _counted_frames(self, utt: str) -> int:
        """The number of frames of the features, which are read once."""
        if not self.has(utt):
            return len(self.raw(utt))  # which raises UserError
        assert isinstance(self.keys, Keys)
        line = self.keys.table.line_of(utt)
        if self._counted[line] < 0:
            self._counted[line] = len(self.raw(utt))
        return int(self._counted[line])

    @cached_property
    def _counted(self) -> np.ndarray:
        """Frames of the features by line of feats.scp, int32, if no table tells them; -1: not yet counted."""
        return np.full(len(self.keys), -1, np.int32)

    def raw(self, utt: str) -> np.ndarray:
        """The stored features, float32 (T, D); (0, D) for a matrix without frames, which Kaldi writes as
        0 x 0. Raises UserError if there are none, or if other utterances have another D."""
        features = self._stored(utt)
        if not len(features):
            return np.zeros((0, self._columns), np.float32)
        if features.shape[1] != self._columns:
            found = f"{utt} has {features.shape[1]} columns, other utterances have {self._columns}"
            raise UserError(
                f"{self.data}: {found}; compute the features of {self.data} again, or remove the utterance"
            )
        return features

    def _stored(self, utt: str) -> np.ndarray:
        try:
            return self._reader.load(self._table[utt])
        except KeyError:
            raise UserError(
                f"{self.data}/feats.scp: no features of utterance {utt}; run steps/make_mfcc.py {self.data} "
                "again"
            ) from None

    @cached_property
    def _columns(self) -> int:
        """D, from the first utterance with frames, read once; for a part without such utterances, from the
        whole directory."""
        found = next((features.shape[1] for features in map(self._stored, self.keys) if len(features)), 0)
        return (
            FeatureReader(self.data, InputOptions(cmvn="none"))._columns if self.part and not found else found
        )

    @cached_property
    def dim(self) -> int:
        """Columns of the input matrices."""
        if not self.keys and not self._columns:
            raise UserError(f"{self.data}/feats.scp is empty; run steps/make_mfcc.py {self.data}")
        return self.options.dim(self._columns) if self.matrix is None else len(self.matrix)

    def __getitem__(self, utt: str) -> np.ndarray:
        """CMVN, deltas, splicing, then the transforms: float32 (T, dim)."""
        features = self.normalised(utt)
        if not len(features):
            return np.zeros((0, self.dim), np.float32)
        features = self.options.extend(features)
        if self.matrix is not None:
            features = apply_transform(features, self.matrix, "the model's matrix")
        if self.transforms is not None:
            features = apply_transform(
                features,
                self._transform(self.transforms, self.speaker(utt)),
                f"the transform of speaker {self.speaker(utt)}",
            )
        return features

    def _transform(self, transforms: Mapping[str, np.ndarray], speaker: str) -> np.ndarray:
        try:
            return transforms[speaker]
        except KeyError:
            raise UserError(
                f"{self.data}: no transform of speaker {speaker}; estimate the transforms on this data "
                "directory"
            ) from None

    def normalised(self, utt: str) -> np.ndarray:
        """Features after CMVN only, float32 (T, D)."""
        features = self.raw(utt)
        if not len(features):
            return features
        if self.options.cmvn != "speaker":
            return self.options.normalise(features)
        mean, inverse_std = self._speaker_normaliser(self.speaker(utt))
        if len(mean) != features.shape[1]:
            found = f"cmvn.scp and feats.scp have different dimensions ({len(mean)} and {features.shape[1]})"
            raise UserError(f"{self.data}: {found}; run steps/compute_cmvn.py {self.data}")
        return self.options.normalise(features, (mean, inverse_std))

    def _speaker_normaliser(self, speaker: str):
        if speaker not in self._normalisers:
            if len(self._normalisers) == _MAX_NORMALISERS:
                self._normalisers.clear()
            if speaker not in self._cmvn:
                raise UserError(
                    f"{self.data}/cmvn.scp: no statistics of speaker {speaker}; run steps/compute_cmvn.py "
                    f"{self.data}"
                )
            stats = ArkReader().load(self._cmvn[speaker], np.float64)
            if len(stats) != 2:
                found = (
                    f"the statistics of speaker {speaker} have {len(stats)} rows and {stats.shape[1]} "
                    "columns, not 2 rows"
                )
                raise UserError(f"{self.data}/cmvn.scp: {found}; run steps/compute_cmvn.py {self.data}")
            self._normalisers[speaker] = normaliser(stats, self.options.norm_vars)
        return self._normalisers[speaker]


def open_features(
    data: Path, model_dir: Path, transform_dir: Path | None = None, part: JobPart | None = None
) -> FeatureReader:
    """The features of a data directory as input of a model.

    model_dir      directory of the model, with input.json and, for some systems, final.mat
    transform_dir  directory whose trans.JOB are applied to the speakers (fMLLR)
    part           part of the utterances, of whose speakers transforms are read; None: all
    """
    speakers = distinct(part.directory().utt2spk.values())[0] if part and transform_dir else None
    transforms = read_transforms(transform_dir, speakers) if transform_dir else None
    return FeatureReader(data, InputOptions.load(model_dir), matrix_of(model_dir), transforms, part=part)


def matrix_of(model_dir: Path) -> np.ndarray | None:
    """The transform of all frames (LDA+MLLT) in a model directory; None if it has none."""
    path = Path(model_dir) / MATRIX_FILE
    return read_matrix(path) if path.exists() else None


def _existing(table: Path) -> Path:
    if not table.exists():
        raise UserError(f"{table}: no such file; {_MAKERS[table.name].format(table.parent)}")
    return table
