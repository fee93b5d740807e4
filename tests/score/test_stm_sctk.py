"""Random references and hypotheses by time: every number of NIST's csrfilt and sclite, by speaker and in all."""

import pytest
from stm_toys import MISSING, compare


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
@pytest.mark.parametrize("with_glm", [True, False], ids=["csrfilt and sclite", "sclite alone"])
def test_all_numbers_are_those_of_sctk(with_glm, tmp_path):
    theirs, ours = compare(11, 60, tmp_path, with_glm)
    assert len(theirs) > 120 and theirs["sum"][0] > 300 and min(theirs["sum"]) > 50
    assert ours == theirs
