"""HMM topologies: the states of each phone, their pdf-classes and transitions, in Kaldi's `topo` format.

    <Topology>
    <TopologyEntry>
    <ForPhones> 1 2 3 </ForPhones>
    <State> 0 <PdfClass> 0 <Transition> 0 0.75 <Transition> 1 0.25 </State>
    <State> 1 </State>
    </TopologyEntry>
    </Topology>

The last state of an entry is final: it emits nothing and has no transitions. All others emit.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base.errors import UserError
from pyasr.io.kaldi_objects import KaldiReader, KaldiWriter

NO_PDF = -1
_LAST_PHONE = 1 << 20


@dataclass(frozen=True)
class HmmState:
    """One state: its pdf-class (NO_PDF: the final state) and transitions (destination, probability)."""

    pdf_class: int
    transitions: tuple[tuple[int, float], ...]

    def self_loop(self, index: int) -> int | None:
        """The position of the self-loop among the transitions, or None; `index` is this state's number."""
        return next((i for i, (destination, _) in enumerate(self.transitions) if destination == index), None)


Entry = tuple[HmmState, ...]


class Topology:
    """The HMM of every phone.

    entries         the different HMMs, each a tuple of HmmState
    phone_to_entry  phone id -> index into `entries`
    """

    def __init__(self, entries: list[Entry], phone_to_entry: dict[int, int]):
        self.entries = list(entries)
        self.phone_to_entry = dict(sorted(phone_to_entry.items()))

    @property
    def phones(self) -> list[int]:
        """Phone ids, ascending."""
        return list(self.phone_to_entry)

    def entry(self, phone: int) -> Entry:
        """The HMM of `phone`. Raises UserError for a phone that is not in the topology."""
        if phone not in self.phone_to_entry:
            raise UserError(
                f"phone {phone} has no HMM in the topology; add it to <ForPhones> in the lang directory's "
                "topo"
            )
        return self.entries[self.phone_to_entry[phone]]

    def num_pdf_classes(self, phone: int) -> int:
        """Number of pdf-classes of a phone: the maximum number of different pdfs of its emitting states."""
        return 1 + max(state.pdf_class for state in self.entry(phone))

    def check_phones(self, phones, where: object = "topo") -> None:
        """Raise UserError unless the topology has exactly `phones`; `where` names the file in the message."""
        missing, extra = sorted(set(phones) - set(self.phones)), sorted(set(self.phones) - set(phones))
        if missing or extra:
            found = f"{_few(missing)} without HMM" if missing else f"{_few(extra)} only in the topology"
            raise UserError(
                f"{where}: the topology does not match the phones (phones {found}); build the language "
                "directory again"
            )

    def __eq__(self, other) -> bool:
        return (
            isinstance(other, Topology)
            and self.phones == other.phones
            and all(self.entry(p) == other.entry(p) for p in self.phones)
        )

    @classmethod
    def read(cls, path: Path | KaldiReader) -> Topology:
        """Read a `topo` file, or the topology at a reader's position inside a model. Raises UserError with
        file and byte offset."""
        reader = path if isinstance(path, KaldiReader) else KaldiReader(path)
        topology = _read_binary(reader) if reader.binary else _read_text(reader)
        if reader is not path:
            reader.expect_end()
        return topology

    def write(self, path: Path | KaldiWriter, binary: bool = False) -> None:
        """Write a `topo` file, as text by default, or into an open writer."""
        if isinstance(path, KaldiWriter):
            return _write_binary(self, path) if path.binary else _write_text(self, path)
        with KaldiWriter(path, binary) as writer:
            self.write(writer)


def left_to_right(num_states: int, self_loop_prob: float = 0.75) -> Entry:
    """Bakis HMM without skips: `num_states` emitting states, each with its pdf-class, and the final state."""
    stay, leave = float(np.float32(self_loop_prob)), float(np.float32(1.0 - self_loop_prob))
    states = [HmmState(i, ((i, stay), (i + 1, leave))) for i in range(num_states)]
    return (*states, HmmState(NO_PDF, ()))


def _few(values: list[int]) -> str:
    return " ".join(map(str, values[:5])) + (f" and {len(values) - 5} more" if len(values) > 5 else "")


def _read_text(reader: KaldiReader) -> Topology:
    reader.expect("<Topology>")
    entries, phone_to_entry = list[Entry](), dict[int, int]()
    while reader.expect("<TopologyEntry>", "</Topology>") == "<TopologyEntry>":
        for phone in _read_phones(reader):
            if phone in phone_to_entry:
                raise reader.error(f"phone {phone} has two topologies")
            if not 1 <= phone <= _LAST_PHONE:
                raise reader.error(f"phone {phone} is not between 1 and {_LAST_PHONE}")
            phone_to_entry[phone] = len(entries)
        entries.append(_read_entry(reader))
    if not entries:
        raise reader.error("the topology has no entries")
    return Topology(entries, phone_to_entry)


def _read_phones(reader: KaldiReader) -> list[int]:
    reader.expect("<ForPhones>")
    phones = []
    while reader.peek_token() != "</ForPhones>":
        phones.append(reader.int32())
    reader.expect("</ForPhones>")
    return phones


def _read_entry(reader: KaldiReader) -> Entry:
    before, states = reader.offset, list[HmmState]()
    while reader.expect("<State>", "</TopologyEntry>") == "<State>":
        number = reader.int32()
        if number != len(states):
            raise reader.error(f"state {len(states)} was expected, found state {number}")
        states.append(_read_state(reader))
    _check_entry(reader, before, states)
    return tuple(states)


def _read_state(reader: KaldiReader) -> HmmState:
    pdf_class, transitions = NO_PDF, []
    token = reader.expect("<PdfClass>", "<ForwardPdfClass>", "<Transition>", "</State>")
    if token == "<ForwardPdfClass>":
        raise reader.error(
            "separate forward and self-loop pdf-classes (Kaldi's chain topology) are not supported"
        )
    if token == "<PdfClass>":
        pdf_class = reader.int32()
        token = reader.expect("<Transition>", "</State>")
    while token == "<Transition>":
        transitions.append((reader.int32(), float(np.float32(reader.float32()))))
        token = reader.expect("<Transition>", "</State>")
    return HmmState(pdf_class, tuple(transitions))


def _check_entry(reader: KaldiReader, offset: int, states: list[HmmState]) -> None:
    """Check what Kaldi requires: emitting states with transitions, then a final one, all pdf-classes used."""
    problem = _entry_problem(states)
    if problem:
        raise reader.error(problem, offset)


def _entry_problem(states: list[HmmState]) -> str:
    if len(states) < 2:
        return "a topology needs an emitting state and a final state"
    if states[-1].pdf_class != NO_PDF or states[-1].transitions:
        return "the last state must be final: no pdf-class, no transitions"
    for index, state in enumerate(states[:-1]):
        destinations = [destination for destination, _ in state.transitions]
        if state.pdf_class < 0:
            return f"state {index} has no pdf-class; only the last state may have none"
        if (
            not destinations
            or len(set(destinations)) < len(destinations)
            or not all(0 <= d < len(states) for d in destinations)
        ):
            return f"state {index} has no transitions, repeated ones, or one to a state that does not exist"
        if any(not 0.0 < probability <= 1.0 for _, probability in state.transitions):
            return f"state {index} has a transition probability outside (0, 1]"
    classes = {state.pdf_class for state in states[:-1]}
    if classes != set(range(len(classes))):
        return f"the pdf-classes are {sorted(classes)}; they must be 0, 1, 2, ... without a gap"
    return ""


def _read_binary(reader: KaldiReader) -> Topology:
    reader.expect("<Topology>")
    before = reader.offset
    phones, phone_to_index = reader.int_vector(), reader.int_vector()
    num_entries = reader.int32()
    if num_entries == -1:
        raise reader.error(
            "separate forward and self-loop pdf-classes (Kaldi's chain topology) are not supported", before
        )
    entries = [_read_binary_entry(reader) for _ in range(_size(reader, num_entries))]
    reader.expect("</Topology>")
    if len(phones) == 0 or phones.min() < 1 or phones.max() >= len(phone_to_index):
        raise reader.error("the list of phones is damaged", before)
    phone_to_entry = {int(p): int(phone_to_index[p]) for p in phones}
    if not all(0 <= i < len(entries) for i in phone_to_entry.values()):
        raise reader.error("a phone refers to a topology entry that does not exist", before)
    return Topology(entries, phone_to_entry)


def _size(reader: KaldiReader, size: int) -> int:
    if not 0 <= size <= reader.num_left:
        raise reader.error(
            f"a size of {size} does not fit into the remaining {reader.num_left} bytes; the file is damaged "
            "or truncated"
        )
    return size


def _read_binary_entry(reader: KaldiReader) -> Entry:
    before, states = reader.offset, []
    for _ in range(_size(reader, reader.int32())):
        pdf_class, num_transitions = reader.int32(), _size(reader, reader.int32())
        states.append(
            HmmState(pdf_class, tuple((reader.int32(), reader.float32()) for _ in range(num_transitions)))
        )
    _check_entry(reader, before, states)
    return tuple(states)


def _write_binary(topology: Topology, writer: KaldiWriter) -> None:
    writer.token("<Topology>")
    phones = topology.phones
    phone_to_index = np.full(phones[-1] + 1, -1, np.int32)
    phone_to_index[phones] = list(topology.phone_to_entry.values())
    writer.int_vector(phones)
    writer.int_vector(phone_to_index)
    writer.int32(len(topology.entries))
    for entry in topology.entries:
        writer.int32(len(entry))
        for state in entry:
            writer.int32(state.pdf_class)
            writer.int32(len(state.transitions))
            for destination, probability in state.transitions:
                writer.int32(destination)
                writer.float32(probability)
    writer.token("</Topology>")


def _write_text(topology: Topology, writer: KaldiWriter) -> None:
    _line(writer, "<Topology>")
    for index, entry in enumerate(topology.entries):
        _line(writer, "<TopologyEntry>")
        _line(writer, "<ForPhones>")
        _line(writer, *(str(p) for p, i in topology.phone_to_entry.items() if i == index))
        _line(writer, "</ForPhones>")
        for number, state in enumerate(entry):
            _line(writer, *_state_words(number, state))
        _line(writer, "</TopologyEntry>")
    _line(writer, "</Topology>")


def _state_words(number: int, state: HmmState) -> list[str]:
    words = ["<State>", str(number)]
    if state.pdf_class != NO_PDF:
        words += ["<PdfClass>", str(state.pdf_class)]
    for destination, probability in state.transitions:
        words += ["<Transition>", str(destination), str(np.float32(probability))]
    return [*words, "</State>"]


def _line(writer: KaldiWriter, *words: str) -> None:
    for word in words:
        writer.token(word)
    writer.newline()
