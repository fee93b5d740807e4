"""The origin of features: how they were made. A model directory records the origin of its training features;
other features are refused.

pyasr's steps write `options.json` next to features of audio. Next to features computed from other features,
and in model directories, they write `feature_origin.json`: a list of origins, each of them

    {"type": "pyasr.feats.options:MfccOptions", ...}    features of audio
    {"fmllr_of": ORIGIN}                                input of a GMM system with speakers' transforms
                                                        applied
    {"streams": [ORIGIN, ...], "each": [...]}           pasted features, with the normalisation and
                                                        context of each stream

For features or models of another toolkit, the origin is unknown and nothing is refused.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

from pyasr.base.cli.option_values import as_typed
from pyasr.base.cli.options import from_json, load, to_json
from pyasr.base.errors import UserError
from pyasr.base.files.foreign_json import read_object
from pyasr.base.outputs.output import atomic_write
from pyasr.feats.feature_kind import class_of_saved, kind_of_options, option_classes
from pyasr.feats.options import OPTIONS_FILE, FrameOptions, MelOptions, PitchOptions
from pyasr.io.ark import archive_of, read_scp

ORIGIN_FILE = "feature_origin.json"
_MAX_NAMED = 4


def origins_of(data: Path) -> list[dict]:
    """The distinct origins of the features of a data directory; empty if the origin of one of its archives is
    unknown."""
    table = Path(data) / "feats.scp"
    if not table.exists():
        return []
    archives = dict.fromkeys(map(archive_of, read_scp(table).values()))
    message = [
        _recorded_in(Path(folder)) if folder is not None else []
        for folder in dict.fromkeys(os.path.dirname(archive) if archive else None for archive in archives)
    ]
    origins = [origin for found in message for origin in found]
    return (
        [origin for number, origin in enumerate(origins) if origin not in origins[:number]]
        if all(message)
        else []
    )


def origin_of(data: Path) -> dict | None:
    """The origin of the features of a data directory, if it is unique and known."""
    origins = origins_of(data)
    return origins[0] if len(origins) == 1 else None


def save_origins(folder: Path, origins: list[dict]) -> None:
    """Write FOLDER/feature_origin.json if origins are known."""
    if origins:
        with atomic_write(Path(folder) / ORIGIN_FILE) as f:
            json.dump({"origins": origins}, f, indent=1)


def keep_origin(model_dir: Path, data: Path) -> None:
    """Record in a model directory the origin of its training features, those of `data`."""
    save_origins(model_dir, origins_of(data))


def kept_origins(folder: Path) -> list[dict]:
    """The origins written by `save_origins`; empty if there is no file. Raises UserError if it is invalid."""
    path = Path(folder) / ORIGIN_FILE
    try:
        origins = read_object(path)["origins"]
        for origin in origins:
            _kept(origin)
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path}: not in the format of pyasr's steps ({error}); run the step for {folder} again"
        ) from None
    return origins


def audio_options(origin: dict):
    """The options of the underlying features of audio of an origin, for streams of the first one."""
    while "type" not in origin:
        origin = origin["fmllr_of"] if "fmllr_of" in origin else origin["streams"][0]
    return _options(origin)


def made_of_features(origins: list[dict]) -> str:
    """The name of the first of these origins that is not features of audio, such as fMLLR features; '' if
    there is none."""
    return next((_name(origin) for origin in origins if "type" not in origin), "")


def check_origin(data: Path, model_dir: Path) -> None:
    """Raise UserError if the features of `data` are known to differ in origin from those on which a model was
    trained.

    Options without effect, or with effect only on noise, may differ: dither, and options of parts that are
    not computed.
    """
    trained = kept_origins(Path(model_dir))
    kept = [_kept(origin) for origin in trained]
    for origin in origins_of(data) if trained else ():
        if _kept(origin) not in kept:
            found = (
                f"its features differ from those on which {model_dir} was trained "
                f"({difference(origin, trained[0])})"
            )
            raise UserError(
                f"{data}: {found}; compute them by the same steps with the same configuration file"
            )


def same_features(one, other) -> bool:
    """Whether two sets of options result in the same features of audio, except for noise."""
    return type(one) is type(other) and _effective(one) == _effective(other)


def difference(origin: dict, other: dict) -> str:
    """The difference between two origins, as part of a sentence."""
    if origin.get("type") != other.get("type") or "type" not in origin:
        return (
            f"{_name(origin)}, not {_name(other)}"
            if _name(origin) != _name(other)
            else f"{_name(origin)} with other options"
        )
    ours, theirs = (_flat(_effective(_options(one))) for one in (origin, other))
    differing = [
        f"--{name.replace('_', '-')} {_short(value)}, not {_short(theirs[name])}"
        for name, value in ours.items()
        if value != theirs[name]
    ]
    return "; ".join(differing[:_MAX_NAMED]) + (" ..." if len(differing) > _MAX_NAMED else "")


def _recorded_in(folder: Path) -> list[dict]:
    """The origins recorded in the folder of an archive."""
    path = folder / OPTIONS_FILE
    return [to_json(load(path, option_classes()))] if path.exists() else kept_origins(folder)


def _kept(origin: dict) -> object:
    """The relevant parts of an origin, for comparison."""
    if "fmllr_of" in origin:
        return "fmllr_of", _kept(origin["fmllr_of"])
    if "streams" in origin:
        return tuple(_kept(stream) for stream in origin["streams"]), origin["each"]
    return _effective(_options(origin))


def _options(origin: dict):
    """Options of features of audio; options that the writing version lacked have their defaults."""
    return from_json(
        class_of_saved(origin["type"]), {name: value for name, value in origin.items() if name != "type"}
    )


def _effective(options):
    """These options, with those that have no effect, or only on noise, set to their defaults."""
    frame, pitch = _as_default(options.frame, "dither"), options.pitch
    if frame.window_type != "blackman":
        frame = _as_default(frame, "blackman_coeff")
    if hasattr(options, "mel"):
        options = dataclasses.replace(options, mel=_effective_mel(options.mel, frame))
    if not getattr(options, "use_energy", hasattr(options, "energy_floor")):
        frame = _as_default(frame, "raw_energy")
        options = _as_default(options, *getattr(options, "of_energy", ()))
    if not pitch.add_pitch:
        pitch = PitchOptions()
    pitch = dataclasses.replace(pitch, process=_as_default(pitch.process, "delta_pitch_noise_stddev"))
    return dataclasses.replace(options, frame=frame, pitch=pitch)


def _effective_mel(mel: MelOptions, frame: FrameOptions) -> MelOptions:
    """With the upper edge relative to 0 Hz, and the knees of warping at their defaults."""
    high_hz = mel.high_freq if mel.high_freq > 0 else mel.high_freq + frame.sample_frequency / 2
    return _as_default(dataclasses.replace(mel, high_freq=high_hz), "vtln_low", "vtln_high")


def _as_default(options, *names: str):
    defaults = {field.name: field.default for field in dataclasses.fields(options)}
    return dataclasses.replace(options, **{name: defaults[name] for name in names})


def _flat(options) -> dict:
    """{name: value} of these options, including nested groups."""
    found: dict = {}
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        found |= _flat(value) if dataclasses.is_dataclass(value) else {field.name: value}
    return found


def _short(value) -> str:
    return f"{value:g}" if isinstance(value, float) else as_typed(value)


def _name(origin: dict) -> str:
    if "fmllr_of" in origin:
        return f"fMLLR features of {_name(origin['fmllr_of'])}"
    return (
        " pasted to ".join(map(_name, origin["streams"]))
        if "streams" in origin
        else kind_of_options(class_of_saved(origin["type"])).title
    )
