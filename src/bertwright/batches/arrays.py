"""Type aliases for NumPy arrays."""

import numpy as np
from numpy.typing import NDArray

BoolArray = NDArray[np.bool_]
Int32Array = NDArray[np.int32]
IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
