"""Tensors as what is written to files."""

import numpy as np
from torch import Tensor


def array(values: Tensor) -> np.ndarray:
    """The values of a tensor or parameter on the CPU."""
    return values.detach().numpy()
