"""Times of progress reports, by a clock that the test sets."""

from pyasr.base.pace import Pace


def moments(until_s: float) -> list[float]:
    """Seconds at which progress is reported."""
    now = [0.0]
    pace, found = Pace(clock=lambda: now[0]), []
    while now[0] < until_s:
        now[0] += pace.wait_s
        assert pace.is_due() and not pace.is_due()
        found.append(now[0])
    return found


def test_fifteen_reports_in_first_hour_then_six_per_hour():
    found = moments(24 * 3600)
    gaps = [after - before for before, after in zip(found, found[1:])]
    assert found[:3] == [20, 30, 45] and sum(moment <= 3600 for moment in found) == 15
    assert gaps == sorted(gaps) and gaps[-1] == 600 and len(found) < 15 + 23 * 6 + 2


def test_missed_report_is_due_once():
    now = [0.0]
    pace = Pace(first_s=5.0, clock=lambda: now[0])
    assert not pace.is_due() and pace.wait_s == 5
    now[0] = 100.0
    assert pace.wait_s == 0 and pace.is_due() and not pace.is_due() and pace.wait_s == 50
