"""Conversion of tensors to values that are written to files."""

import numpy as np
from torch import Tensor


def array(values: Tensor) -> np.ndarray:
    """Values of a tensor or parameter as a NumPy array."""
    return values.detach().numpy()
