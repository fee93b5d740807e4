"""Archives that a table names, for its fingerprint."""

import re

from hypothesis import given
from hypothesis import strategies as st

from pyasr.base.outputs.fingerprint import _named_in

PLACES = (
    "x.ark:1",
    "x.ark:23",
    "x.ark:3[0:2]",
    "y.ark:4",
    "sph2pipe x|",
    "x.ark:",
    "x.ark:5 ",
    "x.ark",
    "x.ark7",
    "x.ark:8 9",
    "x.ark:²",
    "",
)
LINES = st.builds(
    "{}{}{}\n".format, st.sampled_from("abc"), st.sampled_from([" ", "  ", "\t"]), st.sampled_from(PLACES)
)


@given(st.lists(LINES, max_size=12), st.booleans())
def test_archives_are_found_once_in_order(lines, is_cut):
    """Skipping lines that name the archive of the line before changes nothing; the last line may lack its
    end."""
    if is_cut and lines:
        lines[-1] = lines[-1][:-1]
    columns = [line.split(maxsplit=1)[1] for line in lines if len(line.split()) > 1]
    assert list(_named_in(lines)) == list(
        dict.fromkeys(re.sub(r":[0-9]+(\[[0-9:, ]*\])?\s*$", ":", place) for place in columns)
    )
