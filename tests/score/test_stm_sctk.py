"""Random stm and ctm files: every number of NIST's csrfilt and sclite, by speaker and in total."""

import numpy as np
import pytest
from stm_toys import MISSING, compare, files_with_alternatives, files_with_words_at_ends, random_files

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@pytest.mark.parametrize("with_glm", [True, False], ids=["csrfilt and sclite", "sclite alone"])
def test_counts_equal_sctk_with_two_channels_per_file(with_glm, tmp_path):
    theirs, ours = compare(random_files(np.random.default_rng(11), 60), tmp_path, with_glm)
    assert len(theirs) > 120 and theirs["sum"][0] > 300 and min(theirs["sum"]) > 50
    assert ours == theirs


def test_ctm_alternatives_and_float32_costs_equal_sctk(tmp_path):
    theirs, ours = compare(files_with_alternatives(np.random.default_rng(0), 2000), tmp_path, with_glm=False)
    assert theirs["sum"][0] == 2000 and ours == theirs


@pytest.mark.parametrize("with_glm", [True, False])
def test_words_at_segment_ends_equal_sctk(with_glm, tmp_path):
    theirs, ours = compare(files_with_words_at_ends(np.random.default_rng(0), 300), tmp_path, with_glm)
    assert theirs["sum"][0] == 300 and ours == theirs
