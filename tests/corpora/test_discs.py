"""Corpus files are found in any folder and with names in upper or lower case."""

from pathlib import Path

import pytest

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.corpora.discs import Disc, files_by_name, paths_below, places_in
from pyasr.corpora.texts import lines_of, read_lines


@pytest.fixture
def discs(tmp_path):
    for name in (
        "d1/data/sw02001.sph",
        "d2/DATA/SW02002.SPH",
        "d2/._sw02002.sph",
        "docs/sw02003.sph.txt",
        "xsw02004.sph",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def test_file_names_in_any_case_and_folder(discs):
    found = files_by_name(list(paths_below([discs])), r"(sw0\d{4})\.sph")
    assert found == {"sw02001": discs / "d1/data/sw02001.sph", "sw02002": discs / "d2/DATA/SW02002.SPH"}


def test_patterns_may_contain_folders(discs):
    assert list(files_by_name(list(paths_below([discs])), r"data/(sw\d+)\.sph")) == ["sw02001", "sw02002"]
    assert not files_by_name(list(paths_below([discs])), r"ata/(sw\d+)\.sph")


def test_first_of_two_copies_is_used_and_both_are_named(discs, capsys):
    log.setup("test")
    (discs / "d3").mkdir()
    (discs / "d3/sw02001.sph").touch()
    assert (
        files_by_name(list(paths_below([discs])), r"(sw0\d{4})\.sph")["sw02001"]
        == discs / "d1/data/sw02001.sph"
    )
    assert (
        f"1 files exist in several copies, the first of each is used: {discs}/d1/data/sw02001.sph (not "
        f"{discs}/d3/sw02001.sph)"
    ) in capsys.readouterr().out


def test_symbolic_links_are_followed_without_cycles(discs):
    (discs / "d1/data/up").symlink_to(discs)
    (discs / "elsewhere").symlink_to(discs / "d1")
    names = [path.relative_to(discs).as_posix() for path in paths_below([discs]) if path.suffix == ".sph"]
    assert "elsewhere/data/sw02001.sph" in names and len(names) == len(set(names))


@pytest.mark.parametrize(
    "folder", [".AppleDouble", ".Trash-1000/files", "lost+found", "__MACOSX", "@eaDir", "$RECYCLE.BIN"]
)
def test_system_files_next_to_the_corpus_are_ignored(discs, folder):
    """Some of them have the names of corpus files."""
    (discs / "d1/data" / folder).mkdir(parents=True)
    (discs / "d1/data" / folder / "sw02001.sph").touch()
    assert (
        files_by_name(list(paths_below([discs])), r"(sw0\d{4})\.sph")["sw02001"]
        == discs / "d1/data/sw02001.sph"
    )


@pytest.mark.parametrize("name", ["SW02007.SPH;1", "SW02007.SPH.;1", "sw02007.sph;12"])
def test_version_suffixes_of_disc_images_are_removed(discs, name):
    (discs / name).touch()
    assert files_by_name(list(paths_below([discs])), r"(sw0\d{4})\.sph")["sw02007"] == discs / name


def test_broken_links_are_missing_files(discs, capsys):
    log.setup("test")
    (discs / "sw02008.sph").symlink_to(discs / "unmounted/sw02008.sph")
    (discs / "sw02009.sph").symlink_to(discs / "sw02009.sph")
    assert not {"sw02008", "sw02009"} & files_by_name(list(paths_below([discs])), r"(sw0\d{4})\.sph").keys()
    report = (
        f"2 dangling links, such as {discs}/sw02008.sph (to {discs}/unmounted/sw02008.sph); their files "
        "are missing"
    )
    assert report in capsys.readouterr().out


def test_location_may_be_a_file(discs):
    assert list(paths_below([discs / "xsw02004.sph", discs / "d1"])) == [
        discs / "xsw02004.sph",
        discs / "d1/data/sw02001.sph",
    ]


@pytest.mark.parametrize(
    "name, hint",
    [
        ("swb1_d1.iso", "a disc image: mount or unpack it first"),
        ("LDC2002T43.tgz", "an archive: unpack it first"),
        ("x.tar.bz2", "an archive: unpack it first"),
        ("x.zip.001", "an archive: unpack it first, after joining the parts (.zip.001, .zip.002) with cat"),
    ],
)
def test_packed_discs_are_named(tmp_path, name, hint):
    (tmp_path / name).touch()
    error = Disc("Corpus", "x.sph", "--corpus").missing([tmp_path], paths_below([tmp_path]))
    assert (
        str(error)
        == f"Corpus: no x.sph below {tmp_path}; give its directory with --corpus; {tmp_path}/{name} is {hint}"
    )


def test_missing_files_give_one_sentence(tmp_path):
    disc = Disc("Corpus (LDC00X00)", "x.sph", "--corpus")
    assert (
        str(disc.missing([tmp_path]))
        == f"Corpus (LDC00X00): no x.sph below {tmp_path}; give its directory with --corpus"
    )
    assert (
        str(disc.missing([]))
        == "Corpus (LDC00X00): no x.sph, because no directory was given; give its directory with --corpus"
    )
    with pytest.raises(UserError, match="nowhere: no such directory; correct the path, or mount the disc"):
        list(paths_below([tmp_path / "nowhere"]))


def test_several_locations_are_separated_by_colons(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert places_in("/a:~/b") == [Path("/a"), Path("/home/me/b")]
    assert places_in("") == [] and places_in("/a:/b") == [Path("/a"), Path("/b")]
    (tmp_path / "a:b").mkdir()
    assert places_in(str(tmp_path / "a:b")) == [tmp_path / "a:b"]


def test_latin_1_texts_of_older_discs(tmp_path, capsys):
    log.setup("test")
    (tmp_path / "text").write_bytes("one\r\ncaf\xe9\r\n".encode("latin-1"))
    assert read_lines(tmp_path / "text") == ["one", "café"]
    assert f"{tmp_path}/text:2: not UTF-8; the file is read as Latin-1" in capsys.readouterr().out
    assert lines_of("\ufeffcafé\n".encode(), "x") == ["café"] and lines_of(b"", "x") == []
    assert capsys.readouterr().out == ""
