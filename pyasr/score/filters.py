"""What is done to both texts before they are compared, and the signature that says so."""

from __future__ import annotations

from dataclasses import dataclass

from pyasr.base.options import option

SCORING_VERSION = 1  # changes when the same texts would get other counts
SIGNATURE = "wer|"  # what every signature begins with, and so what tells our WER files from other toolkits'


@dataclass(frozen=True)
class TextFilter:
    """Changes of the words of reference and hypothesis alike: none but the folding of case, unless asked for."""

    case: str = option("lower", "lower: upper and lower case are the same; keep: they differ", choices=("lower", "keep"))
    drop: str | None = option(None, "words that do not count, as hesitations: 'uh,um'; they are taken out of both texts")

    @property
    def dropped(self) -> frozenset[str]:
        """Words taken out of reference and hypothesis, in the case they are compared in."""
        return frozenset(self._folded(self.drop or "").replace(",", " ").split())

    def _folded(self, text: str) -> str:
        return text.lower() if self.case == "lower" else text

    def words(self, text: str) -> list[str]:
        """The words of `text` that count."""
        dropped = self.dropped
        return [word for word in self._folded(text).split() if word not in dropped]

    @property
    def signature(self) -> str:
        """How a WER was counted, in one word: two WERs compare if their signatures are equal."""
        return f"{SIGNATURE}case:{self.case}|drop:{','.join(sorted(self.dropped)) or 'none'}|align:sclite|v{SCORING_VERSION}"
