"""Kernels from numba's cache without the registries of its compiler, which take more processor time to fill than most kernels to load.

Importing it imports numba.
"""

from __future__ import annotations

from numba.core.caching import FunctionCache
from numba.core.runtime import rtsys
from numba.cpython import hashing  # noqa: F401  adds symbols that compiled code may refer to


class LoadingCache(FunctionCache):
    """numba's cache of one function. A kernel that it lacks is compiled as usual: numba's compiler fills the registries itself."""

    def load_overload(self, sig, target_context):
        """The compiled function for a signature, or None."""
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)
