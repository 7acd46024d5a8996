"""Interfaces of other systems. `crossdock.compat.xlog` has the helpers of XLOG's Python module.

>>> from crossdock.compat import xlog
>>> xlog.table({"x": np.arange(3)}, device="cpu").num_rows
3
"""

from . import xlog

__all__ = ["xlog"]
