"""Kinds of sources of a corpus: one module per kind, which registers itself (see `kinds`)."""

from pyasr.intake.own.sources.kinds import Kind, Places, read_corpus, register

__all__ = ["Kind", "Places", "read_corpus", "register"]
