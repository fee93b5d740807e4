"""Commands in tables: refused on request before anything runs, otherwise logged once for each kind before
they run."""

import pytest

from pyasr.base.errors import UserError
from pyasr.base.files import pipes


@pytest.fixture
def shown(monkeypatch):
    """The log lines of a process that has not logged a command yet."""
    lines = []
    monkeypatch.setattr(pipes.log, "info", lines.append)
    monkeypatch.setattr(pipes, "_shown", set())
    monkeypatch.delenv(pipes.NO_PIPES, raising=False)
    return lines


def test_commands_are_logged_once_per_kind(shown):
    for number in range(5):
        pipes.admit(f"sph2pipe -f wav -p -c 1 /a/{number}.sph |", "rec")
        pipes.admit(f"sox '/b/with blank {number}.WAV' -t wav - remix {number} |", "rec")
    assert shown == [
        "runs sph2pipe -f wav -p -c 1 /a/0.sph |",
        "runs sox '/b/with blank 0.WAV' -t wav - remix 0 |",
    ]


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /a/1.sph |",
        "sph2pipe /a/1.sph; rm x |",
        "sph2pipe $(rm x) |",
        'sph2pipe "`rm x`.sph" |',
        "A=1.sph rm /a/1.sph |",
        "sph2pipe /a/1.sph > ~/.bashrc |",
        "sh -c 'rm x' |",
        "sph2pipe /a/*.sph |",
        "sph2pipe /a/1.sph & rm 1.sph |",
        "sph2pipe /a/1.sph\nrm x |",
    ],
)
def test_different_commands_are_different_kinds(command):
    assert pipes.kind_of(command) != pipes.kind_of("sph2pipe /a/2.sph |")


def test_number_of_logged_kinds_is_limited(shown):
    pipes.admit_table(
        {f"rec{i}": f"program-{chr(97 + i // 10)}{chr(97 + i % 10)} |" for i in range(60)}, "wav.scp"
    )
    assert len(shown) == 21 and shown[-1].startswith("commands of further kinds are run but not shown")


@pytest.mark.parametrize(
    "value, refused", [("1", True), ("yes", True), ("0", False), ("", False), ("false", False)]
)
def test_environment_variable_refuses_commands(value, refused, monkeypatch, shown, tmp_path):
    monkeypatch.setenv(pipes.NO_PIPES, value)
    table = {"a": "/a.wav", "b": "cat /b.wav |", "c": "cat /c.wav |"}
    if not refused:
        return pipes.admit_table(table, tmp_path / "wav.scp")
    with pytest.raises(
        UserError,
        match=r"wav.scp: 2 of 3 entries are commands, such as 'b cat /b.wav \|', and commands are refused",
    ):
        pipes.admit_table(table, tmp_path / "wav.scp")
    with pytest.raises(UserError, match="b: commands are refused"):
        pipes.admit(table["b"], "b")
    assert not shown
    pipes.admit_table({"a": "/a.wav"}, tmp_path / "wav.scp")
