"""Imports without garbage collection."""

import gc

import pytest

from pyasr.base.compiled.imports import without_collection


def test_garbage_collection_is_off_during_imports(tmp_path, monkeypatch):
    """Imported objects are excluded from later collections. Without an import, the state is unchanged, even
    after an error."""
    (tmp_path / "large_library.py").write_text(
        "import gc\nwas_collected, objects = gc.isenabled(), [[] for _ in range(20_000)]\n"
    )
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
