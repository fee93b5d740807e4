"""The records of failed ranks."""

from pyasr.liveness.rank_failures import RankFailure, append_failure, first_failure


def test_first_complete_line_is_reported(tmp_path):
    file = tmp_path / "x.error"
    assert first_failure(file) is None
    file.write_bytes(b'{"sentence": "half\xff\n[1]\n\n')
    assert first_failure(file) is None
    for failure in (RankFailure("Straße 1 of 3", True), RankFailure("second", False)):
        append_failure(file, failure)
    assert first_failure(file) == RankFailure("Straße 1 of 3", True)
