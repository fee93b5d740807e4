"""The last messages of failed ranks."""

from pyasr.liveness.rank_failures import RankFailure, first, leave


def test_first_complete_line_is_reported(tmp_path):
    file = tmp_path / "x.error"
    assert first(file) is None
    file.write_bytes(b'{"sentence": "half\xff\n[1]\n\n')
    assert first(file) is None
    for words in (RankFailure("Straße 1 of 3", True), RankFailure("second", False)):
        leave(file, words)
    assert first(file) == RankFailure("Straße 1 of 3", True)
