"""The warp factors of a data directory: `spk2warp` (a factor per speaker) or `utt2warp` (a factor per
utterance), as in Kaldi."""

from __future__ import annotations

from collections.abc import Mapping

from pyasr.base.errors import UserError
from pyasr.data.tables.datadir import DataDir
from pyasr.io.text_tables import read_numbers

SPEAKER_WARPS, UTTERANCE_WARPS = "spk2warp", "utt2warp"
_MIN_WARP, _MAX_WARP = 0.5, 2.0


def utterance_warps(data: DataDir) -> dict[str, float]:
    """Warp factor of each utterance; 1 without either table. If both exist, spk2warp is used, as in Kaldi's
    scripts.

    Raises UserError for a speaker or utterance without a factor, and for an implausible factor.
    """
    if data.has(SPEAKER_WARPS):
        return _find(data, SPEAKER_WARPS, data.utt2spk)
    if data.has(UTTERANCE_WARPS):
        return _find(data, UTTERANCE_WARPS, {utt: utt for utt in data.utterances})
    return dict.fromkeys(data.utterances, 1.0)


def _find(data: DataDir, name: str, keys: Mapping[str, str]) -> dict[str, float]:
    """`keys` with the factor of each value."""
    path = data.path / name
    warps = read_numbers(path)
    for key, warp in warps.items():
        if not _MIN_WARP <= warp <= _MAX_WARP:
            raise UserError(
                f"{path}: '{key} {warp:g}' is not a warp factor from {_MIN_WARP:g} to {_MAX_WARP:g}; correct "
                "the line"
            )
    missing = sorted(set(keys.values()) - warps.keys())
    if missing:
        found = f"no line for {missing[0]}; {len(missing)} of {len(set(keys.values()))} are missing"
        raise UserError(f"{path}: {found}; add them, or delete the file to compute features without warping")
    return {utt: warps[key] for utt, key in keys.items()}
