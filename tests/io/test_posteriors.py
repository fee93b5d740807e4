"""Archives of posteriors against kaldi-native-io, and damaged files."""

import numpy as np
import pytest

from pyasr.base.errors import UserError
from pyasr.io.posteriors import Posteriors, read_posteriors, write_posteriors

FRAMES = {"utt-1": [[(3, 0.25), (70000, 0.75)], [], [(1, 1.0)]], "utt-2": [], "ütt-3": [[(2, -0.125)]]}
POSTERIORS = {key: Posteriors.of(frames) for key, frames in FRAMES.items()}


def as_lists(posteriors):
    return {key: [value.frame(t) for t in range(value.num_frames)] for key, value in posteriors.items()}


@pytest.mark.parametrize("name", ["post.ark", "post.1.gz"])
@pytest.mark.parametrize("binary", [True, False])
def test_posteriors_survive_round_trip(tmp_path, name, binary):
    write_posteriors(tmp_path / name, POSTERIORS, binary)
    assert as_lists(read_posteriors(tmp_path / name)) == FRAMES


@pytest.mark.parametrize("options", ["ark", "ark,t"])
def test_posteriors_are_exchanged_with_kaldi(tmp_path, options):
    kaldi = pytest.importorskip("kaldi_native_io")
    write_posteriors(tmp_path / "ours", POSTERIORS, options == "ark")
    with kaldi.SequentialPosteriorReader(f"ark:{tmp_path}/ours") as reader:
        assert {key: [[tuple(pair) for pair in frame] for frame in value] for key, value in reader} == FRAMES
    with kaldi.PosteriorWriter(f"{options}:{tmp_path}/theirs") as writer:
        for key, frames in FRAMES.items():
            writer.write(key, frames)
    assert as_lists(read_posteriors(tmp_path / "theirs")) == FRAMES
    assert (tmp_path / "theirs").read_bytes() == (tmp_path / "ours").read_bytes()


def test_alignment_becomes_posteriors():
    value = Posteriors.of_alignment(np.array([4, 4, 9]))
    assert [value.frame(t) for t in range(3)] == [[(4, 1.0)], [(4, 1.0)], [(9, 1.0)]]


def test_every_truncation_error_names_the_byte(tmp_path):
    write_posteriors(tmp_path / "whole", {"utt-1": POSTERIORS["utt-1"]})
    whole = (tmp_path / "whole").read_bytes()
    for size in range(1, len(whole)):
        (tmp_path / "cut").write_bytes(whole[:size])
        with pytest.raises(UserError, match=r"cut: .* at byte \d+"):
            read_posteriors(tmp_path / "cut")


@pytest.mark.parametrize(
    "content",
    [
        b"a [ 1 ] \n",
        b"a [ 1 0.5 2 ] \n",
        b"a 1 0.5\n",
        b"a [ x 0.5 ] \n",
        b"a \0B\4\xff\xff\xff\x7f",
        b"a \0B\x08\1\0\0\0",
    ],
)
def test_invalid_files_are_refused(tmp_path, content):
    (tmp_path / "post.1.gz").write_bytes(content)
    with pytest.raises(UserError, match=r"post.1.gz: not an archive of posteriors: .* at byte \d+") as error:
        read_posteriors(tmp_path / "post.1.gz")
    assert "\n" not in str(error.value)


def test_wrong_types_are_named_by_byte(tmp_path):
    write_posteriors(tmp_path / "post", POSTERIORS)
    content = bytearray((tmp_path / "post").read_bytes())
    second = 6 + 2 + 5 + 5 + 10
    content[second] = 8
    (tmp_path / "post").write_bytes(content)
    with pytest.raises(
        UserError, match=f"utt-1 has a pair that is not an int32 and a float at byte {second}"
    ):
        read_posteriors(tmp_path / "post")
