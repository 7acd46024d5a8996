"""Protocols of the objects that the package accepts, for type checkers. No module imports this one at runtime.

Capsules have the type `object`, because the stubs of other libraries declare different types.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias


class ArrowSchema(Protocol):
    def __arrow_c_schema__(self) -> object: ...


class ArrowArray(Protocol):
    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[object, object]: ...


class ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: Any = None) -> object: ...


class ArrowDeviceArray(Protocol):
    def __arrow_c_device_array__(self, requested_schema: Any = None, **kwargs: Any) -> tuple[object, object]: ...


class ArrowDeviceStream(Protocol):
    def __arrow_c_device_stream__(self, requested_schema: Any = None, **kwargs: Any) -> object: ...


Arrow: TypeAlias = ArrowArray | ArrowStream | ArrowDeviceArray | ArrowDeviceStream


# Session.from_arrow distinguishes tables from arrays by these attributes.


class ArrayWithColumns(ArrowArray, Protocol):
    @property
    def columns(self) -> Any: ...


class StreamWithColumns(ArrowStream, Protocol):
    @property
    def columns(self) -> Any: ...


class BatchReader(ArrowStream, Protocol):
    def read_next_batch(self) -> Any: ...


class ArrayWithType(ArrowArray, Protocol):
    @property
    def type(self) -> Any: ...


class StreamWithType(ArrowStream, Protocol):
    @property
    def type(self) -> Any: ...


class StreamWithDtype(ArrowStream, Protocol):
    @property
    def dtype(self) -> Any: ...


ArrowTable: TypeAlias = ArrayWithColumns | StreamWithColumns | BatchReader
ArrowColumn: TypeAlias = ArrayWithType | StreamWithType | StreamWithDtype


class Dlpack(Protocol):
    def __dlpack__(self) -> object: ...


# The stubs of numpy have `__dlpack__` only for arrays of numbers, but this method for all arrays.
class DlpackDevice(Protocol):
    def __dlpack_device__(self) -> tuple[Any, Any]: ...


class CudaArray(Protocol):
    @property
    def __cuda_array_interface__(self) -> Mapping[str, Any]: ...


DlpackTensor: TypeAlias = Dlpack | DlpackDevice
Tensor: TypeAlias = DlpackTensor | CudaArray


class VortexArray(Protocol):
    def __vortex_array_metadata__(self) -> tuple[str, bytes, int, bytes, Sequence[object], Sequence[Any]]: ...


class EncodedArray(Protocol):
    def __crossdock_encoded_array__(self) -> object: ...
