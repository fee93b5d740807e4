"""Put a data directory right: sort, drop what is broken or not in every table, make spk2utt anew."""

from __future__ import annotations

from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.output import adopt
from pyasr.base.system_errors import keeping_name
from pyasr.base.table_paths import placed, root_of
from pyasr.data.audio_looks import look_at_audio
from pyasr.data.backup import back_up
from pyasr.data.channels import labels_of
from pyasr.data.datadir import (
    FILE_AND_CHANNEL, RECORDING_TABLES, SPEAKER_TABLES, SPEED, UTTERANCE_TABLES, DataDir, completed, default_value,
)  # fmt: skip
from pyasr.data.validation import (
    MADE_BY_HAND, OF_WORDS, RULES, Table, by_hand, overshoot_complaint, recording_seconds,
)
from pyasr.io.ark import archive_of
from pyasr.io.text import invert, write_table

_ESSENTIAL = ("utt2spk", "text", "segments", "feats.scp")  # an utterance without an entry here is removed
# All other tables but those of MADE_BY_HAND can be made again; one that lacks an entry is removed.


def fix(path: Path, *, audio: str = "exists", prefix_speakers: bool = False) -> list[str]:
    """Repair the data directory `path` in place; what was done, a sentence each. Changed files are kept in PATH/.backup, each time anew.

    audio             'exists' removes recordings whose file is missing or of another size than its header tells, 'read' those that cannot
                      be read to their end, 'no' does not look;
                      those stay that a table, an installed program or an option would put right
    prefix_speakers   put 'SPEAKER-' before every utterance that does not begin with its speaker

    Raises UserError, and changes nothing, when no utterance would be left, and when two would get one name.
    """
    path = Path(path)
    DataDir(path)
    said: list[str] = []
    tables = {name: _sound_lines(name, Table(path / name), said) for name in RULES if (path / name).exists()}
    if "utt2spk" not in tables:
        raise UserError(f"{path}/utt2spk: missing; write it, one 'UTTERANCE SPEAKER' a line")
    _drop_beyond_recordings(tables, _drop_missing_audio(path, tables, audio, said), said)
    _agree(tables, path, said)
    if prefix_speakers:
        tables = _prefixed(tables, path, said)
    tables["spk2utt"] = invert(tables["utt2spk"])
    _write_changed(path, tables, said)
    adopt(path)
    return said


def _sound_lines(name: str, table: Table, said: list[str]) -> dict[str, str]:
    """The table without lines that break its rule. A surplus column of utt2spk is cut off; the first of two lines for a key stays.

    Lines that nothing could make again stay too, broken as they are.
    """
    rule, found = RULES[name], {}
    least, most = rule.columns
    if table.packing:
        said.append(f"{table.path}: unpacked")
    if table.has_mark:
        said.append(f"{table.path}: took away its byte order mark")
    if table.with_returns:
        said.append(f"{table.path}: took away the carriage returns of {len(table.with_returns)} lines")
    odd = set(table.with_other_blanks) if name in OF_WORDS else set()
    if odd:
        said.append(f"{table.path}: put spaces in the place of other blanks in {len(odd)} lines")
    for number, (key, value) in enumerate(zip(table.keys, table.values), 1):
        words = value.split()
        if number in odd:
            value = " ".join(words)
        if name == "utt2spk" and len(words) > 1:
            said.append(f"{table.path}:{number}: cut off '{' '.join(words[1:])}'")
            words, value = words[:1], words[0]
        num = len(words) + bool(key)
        broken = num < least or (most is not None and num > most) or (rule.check is not None and rule.check(value))
        if broken and (advice := by_hand(name, key, num)) and key not in found:
            said.append(f"{table.path}:{number}: left '{table.lines[number - 1]}' as it is; {advice}")
            found[key] = value
        elif broken or key in found:
            said.append(f"{table.path}:{number}: removed '{table.lines[number - 1]}'{'' if broken else ', a second line of its key'}")
        else:
            found[key] = value
    return found


def _drop_missing_audio(path: Path, tables: dict[str, dict], audio: str, said: list[str]) -> dict[str, float]:
    """{recording: seconds} of the audio that was read."""
    wav, feats, heard = tables.get("wav.scp", {}), tables.get("feats.scp", {}), {}
    root, labels = root_of(path / "wav.scp", wav.values()), labels_of(tables.get(FILE_AND_CHANNEL, {}))
    for key in list(wav):
        found = look_at_audio(placed(root, wav[key]), audio, labels.get(key, ""))
        if found.by_hand:
            said.append(f"left recording {key} as it is: {found.complaint}; {found.by_hand}")
        elif found.complaint:
            said.append(f"removed recording {key}: {found.complaint}")
            del wav[key]
        elif found.seconds is not None:
            heard[key] = found.seconds
    root = root_of(path / "feats.scp", feats.values())
    for key, rx in list(feats.items()):
        if archive_of(rx) and not (root / archive_of(rx)).exists():
            said.append(f"removed features of {key}: no archive {archive_of(rx)}")
            del feats[key]
    if "feats.scp" in tables and not feats and wav:
        said.append("removed feats.scp: none of its archives are there")
        del tables["feats.scp"]
    return heard


def _drop_beyond_recordings(tables: dict[str, dict], heard: dict[str, float], said: list[str]) -> None:
    """Remove segments that do not lie within their recordings, where it is known how long these are."""
    seconds = recording_seconds(tables.get("reco2dur", {}), tables.get(SPEED, {}), heard)
    for utt, value in list(tables.get("segments", {}).items()):
        if complaint := overshoot_complaint(value, seconds):
            said.append(f"removed segment {utt}: it {complaint}")
            del tables["segments"][utt]


def _agree(tables: dict[str, dict], path: Path, said: list[str]) -> None:
    """Keep the utterances that all essential tables have, and the speakers and recordings of those."""
    kept = set(tables["utt2spk"])
    for name in _ESSENTIAL:
        if name in tables:
            kept &= tables[name].keys()
    if "wav.scp" in tables:
        segments = tables.get("segments")
        kept = {utt for utt in kept if (segments[utt].split()[0] if segments else utt) in tables["wav.scp"]}
    if not kept:
        raise UserError(f"{path}: no utterance is in all of {', '.join(n for n in (*_ESSENTIAL, 'wav.scp') if n in tables)}; "
                        "nothing was changed, make these tables agree first")
    lost = len(tables["utt2spk"].keys() - kept)
    if lost:
        said.append(f"removed {lost} utterance(s) that are not in every table, {len(kept)} are left")
    filter_tables(tables, kept)
    _complete_or_drop(tables, said)


def filter_tables(tables: dict[str, dict], kept: set[str]) -> None:
    """Leave in each table only what belongs to the utterances `kept`, of which segments, where there are any, have lines."""
    speakers = {tables["utt2spk"][utt] for utt in kept}
    recordings = {tables["segments"][utt].split()[0] for utt in kept} if tables.get("segments") else kept
    for names, keys in ((UTTERANCE_TABLES, kept), (SPEAKER_TABLES, speakers), (RECORDING_TABLES, recordings)):
        for name in names:
            if name in tables:
                tables[name] = {key: value for key, value in tables[name].items() if key in keys}


def _complete_or_drop(tables: dict[str, dict], said: list[str]) -> None:
    """Complete or remove the tables that lack an entry; those removed can be made again, those that cannot stay as they are."""
    speakers = set(tables["utt2spk"].values())
    recordings = {value.split()[0] for value in tables["segments"].values()} if "segments" in tables else tables["utt2spk"].keys()
    for names, keys in ((UTTERANCE_TABLES, tables["utt2spk"].keys()), (SPEAKER_TABLES, speakers), (RECORDING_TABLES, recordings)):
        for name in names:
            if name == "spk2utt" or name not in tables or tables[name].keys() == keys:
                continue
            lacks = f"it lacks {len(keys - tables[name].keys())} of {len(keys)} entries"
            if default_value(name, "") is not None:
                said.append(f"completed {name}: {lacks}")
                tables[name] = completed(name, tables[name], sorted(keys))
            elif name in MADE_BY_HAND:
                said.append(f"left {name} as it is: {lacks}; add them by hand")
            else:
                said.append(f"removed {name}: {lacks}; make it again")
                del tables[name]


def _prefixed(tables: dict[str, dict], path: Path, said: list[str]) -> dict[str, dict]:
    speaker = tables["utt2spk"]
    new = {utt: utt if utt.startswith(f"{speaker[utt]}-") else f"{speaker[utt]}-{utt}" for utt in speaker}
    _check_distinct(new, path)
    said.append(f"renamed {sum(utt != name for utt, name in new.items())} utterance(s) to SPEAKER-UTTERANCE")
    by_utterance = UTTERANCE_TABLES + (() if "segments" in tables else RECORDING_TABLES)
    renamed = {name: {new[key]: value for key, value in table.items()} if name in by_utterance else table for name, table in tables.items()}
    if "utt2uniq" in renamed:
        renamed["utt2uniq"] = {utt: new.get(original, original) for utt, original in renamed["utt2uniq"].items()}
    return renamed


def _check_distinct(new: dict[str, str], path: Path) -> None:
    old: dict[str, str] = {}
    for utt, name in new.items():
        if name in old:
            raise UserError(f"{path}/utt2spk: {old[name]} and {utt} would both be called {name}; "
                            "nothing was changed, rename one of them in all tables first")
        old[name] = utt


def _write_changed(path: Path, tables: dict[str, dict], said: list[str]) -> None:
    """Write what differs from what is there, the old file kept in PATH/.backup; delete tables that are gone."""
    for name in RULES:
        with keeping_name(path / name):
            _write_changed_table(path / name, tables.get(name), said)


def _write_changed_table(old: Path, table: dict | None, said: list[str]) -> None:
    """Write one table where it differs from the file `old`; None: delete it."""
    content = "".join(f"{key} {value}".rstrip() + "\n" for key, value in sorted((table or {}).items())).encode()
    if old.exists() and (table is None or old.read_bytes() != content):
        said.append(f"kept {old} as it was in {back_up(old)}")
    if table is None:
        old.unlink(missing_ok=True)
    elif not old.exists() or old.read_bytes() != content:
        write_table(old, table)
        said.append(f"wrote {old}")
