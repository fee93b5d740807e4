"""Lines of ctm files."""

from pyasr.data.transcripts.ctm import CtmLine, sorted_lines


def test_ctm_lines_survive_text_round_trip():
    line = CtmLine("tape", "A", 1.5, 0.25, "w\u00f6rd", 0.5)
    assert str(line) == "tape A 1.50 0.25 w\u00f6rd 0.5000" and CtmLine.parse(str(line)) == line
    late, other = CtmLine("tape", "A", 10.0, 0.1, "x", 1.0), CtmLine("tape", "B", 0.0, 0.1, "x", 1.0)
    assert sorted_lines([other, late, line]) == [line, late, other]
