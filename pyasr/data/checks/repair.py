"""Repair a data directory: sort its tables, drop invalid lines and incomplete utterances, rebuild spk2utt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.files.table_paths import placed, root_of
from pyasr.base.outputs.output import adopt
from pyasr.base.system_errors import keeping_name
from pyasr.data.audio.audio_checks import inspect_audio
from pyasr.data.audio.channels import labels_of
from pyasr.data.checks.backup import back_up
from pyasr.data.checks.soundness import sound_table
from pyasr.data.checks.validation import TableLines
from pyasr.data.tables.datadir import (
    FILE_AND_CHANNEL,
    RECORDING_TABLES,
    SPEAKER_TABLES,
    SPEED,
    UTTERANCE_TABLES,
    DataDir,
    Tables,
    completed,
    default_value,
    filtered,
)
from pyasr.data.tables.rules import (
    MADE_BY_HAND,
    OF_WORDS,
    RULES,
    by_hand,
    overshoot_complaint,
    recording_seconds,
)
from pyasr.io.ark import archive_of
from pyasr.io.keys import Keys, distinct
from pyasr.io.lazy_tables import Lazy, Stored, at_hand, mapped
from pyasr.io.tables import NotInOrder, Table, lines_in_order
from pyasr.io.text_tables import invert, write_table

_ESSENTIAL = ("utt2spk", "text", "segments", "feats.scp")  # an utterance without an entry here is removed
_HELD = ("utt2spk", "segments")  # kept in memory, together with one other table at a time
# All other tables except MADE_BY_HAND can be created again. They are removed if they lack an entry.


def fix(path: Path, *, audio: str = "exists", prefix_speakers: bool = False) -> list[str]:
    """Repair the data directory `path` in place. Returns one sentence for each change. The previous files are
    saved in PATH/.backup.

    audio             'exists' removes recordings whose file is missing, or does not have the size that its
                      header gives. 'read' removes recordings that cannot be read to their end. 'no' does not
                      check the audio. Recordings are kept if a table, an installed program or an option can
                      correct the problem.
    prefix_speakers   prepend 'SPEAKER-' to every utterance that does not begin with its speaker

    Raises UserError, and changes nothing, if no utterance would remain, or if two utterances would get the
    same name.
    """
    path = Path(path)
    DataDir(path)
    said: list[str] = []
    tables: Tables = {name: _sound_part(path / name, said) for name in RULES if (path / name).exists()}
    if "utt2spk" not in tables:
        raise UserError(f"{path}/utt2spk: missing; write it with lines 'UTTERANCE SPEAKER'")
    _drop_beyond_recordings(tables, _drop_missing_audio(path, tables, audio, said), said)
    _agree(tables, path, said)
    if prefix_speakers:
        tables = _prefixed(tables, path, said)
    tables["spk2utt"] = invert(tables["utt2spk"])
    for name in RULES:
        with keeping_name(path / name):
            _write_changed_table(path / name, tables.get(name), said)
    adopt(path)
    return said


def _sound_part(path: Path, said: list[str]) -> Stored:
    """The table in a file, without invalid lines. Each use reads the file again, because all tables together
    may not fit into memory."""
    part = Stored(partial(_read, path))
    _read(path, said)
    return part


def _read(path: Path, said: list[str] | None = None) -> Table:
    table = sound_table(path)
    return (
        Table.of(_sound_lines(path.name, TableLines(path), [] if said is None else said))
        if table is None
        else table
    )


def _sound_lines(name: str, table: TableLines, said: list[str]) -> Iterator[tuple[str, str]]:
    """The table without invalid lines, except those that cannot be created again. Surplus columns of utt2spk
    are removed. Of several lines with the same key, the first is kept."""
    rule, doubled, taken = RULES[name], _doubled(table), set[str]()
    least, most = rule.columns
    if table.packing:
        said.append(f"{table.path}: unpacked")
    if table.has_mark:
        said.append(f"{table.path}: removed the byte order mark")
    if table.with_returns:
        said.append(f"{table.path}: removed the carriage returns of {len(table.with_returns)} lines")
    odd = set(table.with_other_blanks) if name in OF_WORDS else set()
    if odd:
        said.append(f"{table.path}: replaced other blanks by spaces in {len(odd)} lines")
    for number, (key, value) in enumerate(zip(table.keys, table.values), 1):
        words = value.split()
        if number in odd:
            value = " ".join(words)
        if name == "utt2spk" and len(words) > 1:
            said.append(f"{table.path}:{number}: removed the surplus columns '{' '.join(words[1:])}'")
            words, value = words[:1], words[0]
        num = len(words) + bool(key)
        broken = (
            num < least or (most is not None and num > most) or (rule.check is not None and rule.check(value))
        )
        if broken and (advice := by_hand(name, key, num)) and key not in taken:
            said.append(f"{table.path}:{number}: kept the invalid line '{table.lines[number - 1]}'; {advice}")
            yield key, value
            taken.update(doubled & {key})
        elif broken or key in taken:
            said.append(
                f"{table.path}:{number}: removed "
                f"'{table.lines[number - 1]}'{'' if broken else ', a duplicate key'}"
            )
        else:
            yield key, value
            taken.update(doubled & {key})


def _doubled(table: TableLines) -> set[str]:
    """The keys that have several lines."""
    keys = Keys(Table.of_keys(table.keys))
    return {key for key, following in pairwise(keys) if key == following}


def _drop_missing_audio(path: Path, tables: Tables, audio: str, said: list[str]) -> dict[str, float]:
    """Remove recordings whose audio is missing or damaged, and features whose archive is missing. Returns
    {recording: seconds} for the audio that was read."""
    wav, gone, heard = at_hand(tables.get("wav.scp", {})), set[str](), dict[str, float]()
    root, labels = root_of(path / "wav.scp", wav.values()), labels_of(tables.get(FILE_AND_CHANNEL, {}))
    for key, entry in wav.items():
        found = inspect_audio(placed(root, entry), audio, labels.get(key, ""))
        if found.by_hand:
            said.append(f"kept recording {key}: {found.complaint}; {found.by_hand}")
        elif found.complaint:
            said.append(f"removed recording {key}: {found.complaint}")
            gone.add(key)
        elif found.seconds is not None:
            heard[key] = found.seconds
    _remove(tables, "wav.scp", gone)
    _drop_missing_features(path, tables, said)
    return heard


def _drop_missing_features(path: Path, tables: Tables, said: list[str]) -> None:
    feats = at_hand(tables.get("feats.scp", {}))
    root = root_of(path / "feats.scp", feats.values())
    are_there = {
        archive: (root / archive).exists() for archive in set(map(archive_of, feats.values())) if archive
    }
    gone = (
        {key for key, rx in feats.items() if not are_there.get(archive_of(rx), True)}
        if not all(are_there.values())
        else set()
    )
    said += [
        f"removed features of {key}: no archive {archive_of(rx)}" for key, rx in feats.items() if key in gone
    ]
    _remove(tables, "feats.scp", gone)
    if "feats.scp" in tables and not tables["feats.scp"] and tables.get("wav.scp"):
        said.append("removed feats.scp: none of its archives exist")
        del tables["feats.scp"]


def _remove(tables: Tables, name: str, gone: set[str]) -> None:
    """Remove the lines with the keys `gone` from a table."""
    if gone:
        table = tables[name]
        tables[name] = Lazy(lambda: (item for item in table.items() if item[0] not in gone))


def _drop_beyond_recordings(tables: Tables, heard: dict[str, float], said: list[str]) -> None:
    """Remove segments that are not within their recordings, if the length of the recording is known."""
    seconds, gone = recording_seconds(tables.get("reco2dur", {}), tables.get(SPEED, {}), heard), set[str]()
    for utt, value in tables.get("segments", {}).items() if seconds else ():
        if complaint := overshoot_complaint(value, seconds):
            said.append(f"removed segment {utt}: it {complaint}")
            gone.add(utt)
    _remove(tables, "segments", gone)


def _agree(tables: Tables, path: Path, said: list[str]) -> None:
    """Keep the utterances that are in all essential tables, and their speakers and recordings."""
    _hold(tables)
    kept = _kept(tables)
    if not kept:
        raise UserError(
            f"{path}: no utterance is in all of "
            f"{', '.join(n for n in (*_ESSENTIAL, 'wav.scp') if n in tables)}; nothing was changed, correct "
            "these tables first"
        )
    lost = len(tables["utt2spk"]) - len(kept)
    if lost:
        said.append(f"removed {lost} utterance(s) that are not in every table, {len(kept)} remain")
    tables.update(filtered(tables, kept))
    _hold(tables)
    _complete_or_drop(tables, said)


def _hold(tables: Tables) -> None:
    """Load the tables of _HELD into memory, because the checks of other tables need them."""
    tables.update((name, at_hand(tables[name])) for name in _HELD if name in tables)


def _utt2spk(tables: Tables) -> Table:
    table = tables["utt2spk"]
    return table if isinstance(table, Table) else Table.of(table.items())


def _kept(tables: Tables) -> Table:
    """The utterances that are in all essential tables, and whose recording is in wav.scp."""
    kept = Table.of_keys(Keys(_utt2spk(tables)))
    for name in (name for name in _ESSENTIAL if name in tables):
        kept = _where(kept, at_hand(tables[name]).__contains__)
    if "wav.scp" in tables:
        wav, segments = at_hand(tables["wav.scp"]), tables.get("segments")
        kept = _where(kept, lambda utt: (segments[utt].split()[0] if segments else utt) in wav)
    return kept


def _where(keys: Table, is_wanted: Callable[[str], bool]) -> Table:
    return keys.where(map(is_wanted, keys))


def _complete_or_drop(tables: Tables, said: list[str]) -> None:
    """Complete or remove the tables that lack an entry. Tables that cannot be created again are kept
    unchanged."""
    utterances, speakers = Keys(_utt2spk(tables)), Keys(distinct(tables["utt2spk"].values())[0])
    segments = tables.get("segments")
    recordings = (
        utterances if segments is None else Keys(distinct(value.split()[0] for value in segments.values())[0])
    )
    for names, keys in (
        (UTTERANCE_TABLES, utterances),
        (SPEAKER_TABLES, speakers),
        (RECORDING_TABLES, recordings),
    ):
        for name in (name for name in names if name != "spk2utt" and name in tables):
            if lacks := len(keys) - sum(1 for _ in tables[name].items()):
                _complete_one_or_drop(tables, name, keys, f"it lacks {lacks} of {len(keys)} entries", said)


def _complete_one_or_drop(tables: Tables, name: str, keys: Keys, lacks: str, said: list[str]) -> None:
    """`_complete_or_drop` for one table, which lacks lines for some of `keys`; `lacks` is a clause about
    it."""
    if default_value(name, "") is not None:
        said.append(f"completed {name}: {lacks}")
        tables[name] = completed(name, tables[name], keys)
    elif name in MADE_BY_HAND:
        said.append(f"kept {name}: {lacks}; add them by hand")
    else:
        said.append(f"removed {name}: {lacks}; create it again")
        del tables[name]


def _prefixed(tables: Tables, path: Path, said: list[str]) -> Tables:
    speaker = tables["utt2spk"]
    new = Table.of((utt, utt if utt.startswith(f"{of}-") else f"{of}-{utt}") for utt, of in speaker.items())
    _check_distinct(new, path)
    said.append(f"renamed {sum(utt != name for utt, name in new.items())} utterance(s) to SPEAKER-UTTERANCE")
    by_utterance = UTTERANCE_TABLES + (() if "segments" in tables else RECORDING_TABLES)
    renamed = {
        name: mapped(table, new.__getitem__) if name in by_utterance else table
        for name, table in tables.items()
    }
    if "utt2uniq" in renamed:
        renamed["utt2uniq"] = mapped(renamed["utt2uniq"], value=lambda original: new.get(original, original))
    _hold(renamed)
    return renamed


def _check_distinct(new: Table, path: Path) -> None:
    if len(Table.of((name, "") for name in new.values())) == len(new):
        return
    old: dict[str, str] = {}
    for utt, name in new.items():
        if name in old:
            raise UserError(
                f"{path}/utt2spk: {old[name]} and {utt} would both be renamed to {name}; "
                "nothing was changed, rename one of them in all tables first"
            )
        old[name] = utt


def _write_changed_table(old: Path, table: Mapping[str, str] | None, said: list[str]) -> None:
    """Write one table if it differs from the file `old`. If the table is None, delete the file."""
    is_current = old.exists() and table is not None and _is_as_written(old, table)
    if old.exists() and not is_current:
        said.append(f"saved the previous {old} as {back_up(old)}")
    if table is None:
        old.unlink(missing_ok=True)
    elif not is_current:
        write_table(old, table)
        said.append(f"wrote {old}")


def _is_as_written(path: Path, table: Mapping[str, str]) -> bool:
    """Whether a file has the content that `write_table` would write."""
    with suppress(NotInOrder):
        return _has_lines(path, lines_in_order(table.items()))
    return _has_lines(path, Table.of(table.items()).sorted_lines())


def _has_lines(path: Path, lines: Iterable[bytes]) -> bool:
    with path.open("rb") as f:
        return all(f.read(len(some)) == some for some in lines) and not f.read(1)
