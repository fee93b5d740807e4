"""All formats, by their names."""

from fuzz_models import MODEL_FORMATS
from fuzz_tables import ARCHIVES, AUDIO, TEXTS

FORMATS = {format.name: format for format in MODEL_FORMATS + ARCHIVES + AUDIO + TEXTS}
