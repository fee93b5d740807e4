"""Records of runs name the commit of the code, whether it was changed, and the versions of packages."""

import importlib.metadata
import subprocess

import pytest

from pyasr.base.outputs import run_record


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """An empty repository instead of that of pyasr: (its directory, a function that runs git there)."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", tmp_path, *words],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    git("init")
    monkeypatch.setattr(run_record, "_ROOT", tmp_path)
    return tmp_path, git


def test_commit_is_named_with_changes_of_tracked_files(repository):
    path, git = repository
    assert run_record.commit() == "unknown"
    (path / "code.py").write_text("1")
    git("add", "code.py")
    git("commit", "-m", "first")
    (path / "output").write_text("not tracked")
    head = git("rev-parse", "--short=12", "HEAD")
    assert run_record.commit() == head
    (path / "code.py").write_text("2")
    assert run_record.commit() == head + "+changes"
    git("add", "code.py")
    assert run_record.commit() == head + "+changes"


def test_commit_is_unknown_outside_a_repository_or_without_git(tmp_path, monkeypatch):
    monkeypatch.setattr(run_record, "_ROOT", tmp_path)
    assert run_record.commit() == "unknown"
    monkeypatch.setenv("PATH", "")
    assert run_record.commit() == "unknown"


def test_versions_are_those_of_installed_packages(monkeypatch):
    monkeypatch.setattr(run_record, "_PACKAGES", ("numpy", "torch", "no-such-package"))
    found = run_record.versions()
    assert found.keys() == {"python", "numpy", "torch"}
    assert all(found[name] == importlib.metadata.version(name) for name in ("numpy", "torch"))
