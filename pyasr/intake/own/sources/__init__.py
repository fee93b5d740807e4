"""What a corpus can be read from: a module for each kind, which registers itself; `kinds` says what one is."""

from pyasr.intake.own.sources.kinds import Kind, Places, read_corpus, register

__all__ = ["Kind", "Places", "read_corpus", "register"]
