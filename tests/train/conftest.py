"""Fixture of all tests in this folder."""

from quick_baseline import quick_baseline  # noqa: F401
