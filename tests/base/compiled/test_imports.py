"""Imports without the collector of garbage."""

import gc

import pytest

from pyasr.base.compiled.imports import without_collection


def test_nothing_is_collected_meanwhile(tmp_path, monkeypatch):
    """What was imported is not looked at afterwards; where nothing was, all stays as it was, also after an error."""
    (tmp_path / "large_library.py").write_text("import gc\nwas_collected, objects = gc.isenabled(), [[] for _ in range(20_000)]\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = gc.get_freeze_count()
    try:
        with without_collection():
            import large_library
        assert not large_library.was_collected and gc.isenabled() and gc.get_freeze_count() > before + 20_000
    finally:
        gc.unfreeze()
    with pytest.raises(ZeroDivisionError), without_collection():
        1 / 0
    assert gc.isenabled() and not gc.get_freeze_count()
