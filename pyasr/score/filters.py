"""Normalisation of both texts before scoring, and the signature that describes it."""

from __future__ import annotations

from dataclasses import dataclass

from pyasr.base.cli.options import option

SCORING_VERSION = 1  # changes if the same texts get other counts
# beginning of every signature, which distinguishes these WER files from those of other toolkits
SIGNATURE = "wer|"


@dataclass(frozen=True)
class TextFilter:
    """Normalisation of the words of reference and hypothesis; the default only ignores case."""

    heading = "scoring"

    case: str = option(
        "lower", "comparison of words; lower: ignore case; keep: distinguish case", choices=("lower", "keep")
    )
    drop: str | None = option(
        None, "comma-separated words to remove from both texts, such as hesitations: 'uh,um'"
    )

    @property
    def dropped(self) -> frozenset[str]:
        """Words removed from reference and hypothesis, after case normalisation."""
        return frozenset(self._folded(self.drop or "").replace(",", " ").split())

    def _folded(self, text: str) -> str:
        return text.lower() if self.case == "lower" else text

    def words(self, text: str) -> list[str]:
        """Words of `text` that are scored."""
        dropped = self.dropped
        return [word for word in self._folded(text).split() if word not in dropped]

    @property
    def signature(self) -> str:
        """The scoring method in one word; two WERs are comparable if their signatures are equal."""
        dropped = ",".join(sorted(self.dropped)) or "none"
        return f"{SIGNATURE}case:{self.case}|drop:{dropped}|align:sclite|v{SCORING_VERSION}"
