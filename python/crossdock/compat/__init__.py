"""Interfaces of other systems. `crossdock.compat.xlog` has the helpers of XLOG's Python module."""

from . import xlog

__all__ = ["xlog"]
