/*
 * crossdock.hpp: the structs of crossdock.h in C++20, for plugins and for applications.
 *
 * Failed calls throw crossdock::Error, and owners release objects. crossdock-plugin.hpp and
 * crossdock-host.hpp include this file. These three headers have no library of their own, and add
 * nothing to the ABI: modules that were built with different compilers or standard libraries work
 * together. The conventions of crossdock.h for threads, devices and texts apply.
 */
#ifndef CROSSDOCK_HPP
#define CROSSDOCK_HPP

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "crossdock.h"

namespace crossdock {

/* ------------------------------------------------------------------------------------ texts --- */

/* Borrows a text for a call. */
constexpr crossdock_str str(std::string_view text) noexcept { return {text.data(), text.size()}; }

/* The text that a crossdock_str borrows. */
constexpr std::string_view view(crossdock_str text) noexcept {
  return text.bytes == 0 ? std::string_view() : std::string_view(text.data, text.bytes);
}

/* ---------------------------------------------------------------------------------- devices --- */

inline constexpr crossdock_device CPU{-1, ARROW_DEVICE_CPU, 0};

/* The CUDA device with this number. */
constexpr crossdock_device cuda(std::int64_t id) noexcept { return {id, ARROW_DEVICE_CUDA, 0}; }

/* ----------------------------------------------------------------------------------- errors --- */

/* A failed call. `what` is one line: who, what, expected, got. */
class Error : public std::exception {
 public:
  Error(crossdock_code code, std::string message, std::string details = {})
      : code_(code), message_(std::move(message)), details_(std::move(details)) {}

  /* Takes the error that a C function returned together with `code`, and empties `err`. */
  static Error take(crossdock_code code, crossdock_error& err) {
    std::unique_ptr<crossdock_error, void (*)(crossdock_error*)> releaser(&err, [](crossdock_error* e) {
      if (e->release) e->release(e);
      *e = {};
      e->struct_size = sizeof *e;
    });
    Error error(code, err.message ? err.message : "an error without a message",
                err.details ? err.details : "");
    error.retry_ = (err.flags & CROSSDOCK_ERROR_RETRY) != 0;
    if (err.flags & CROSSDOCK_ERROR_HAS_OFFSET) error.offset_ = err.offset;
    if (err.flags & CROSSDOCK_ERROR_HAS_ROW) error.row_ = err.row;
    return error;
  }

  const char* what() const noexcept override { return message_.c_str(); }
  crossdock_code code() const noexcept { return code_; }
  const std::string& details() const noexcept { return details_; }
  /* Whether the same call may succeed later. */
  bool may_retry() const noexcept { return retry_; }
  /* The position in the input, in bytes. */
  std::optional<std::uint64_t> offset() const noexcept { return offset_; }
  /* The row of the input. */
  std::optional<std::uint64_t> row() const noexcept { return row_; }

  Error& at_offset(std::uint64_t offset) { return offset_ = offset, *this; }
  Error& at_row(std::uint64_t row) { return row_ = row, *this; }

  /* Writes the error to `err` unless `err` is NULL. Returns the code. */
  crossdock_code write(crossdock_error* err) const noexcept {
    if (!err) return code_;
    err->code = code_;
    err->flags = retry_ ? CROSSDOCK_ERROR_RETRY : 0;
    if (CROSSDOCK_HAS(err, row)) {
      if (offset_) err->flags |= CROSSDOCK_ERROR_HAS_OFFSET;
      if (row_) err->flags |= CROSSDOCK_ERROR_HAS_ROW;
      err->offset = offset_.value_or(0);
      err->row = row_.value_or(0);
    }
    struct Texts {
      std::string message, details;
    };
    try {
      auto texts = std::make_unique<Texts>(Texts{message_, details_});
      err->message = texts->message.c_str();
      err->details = texts->details.empty() ? nullptr : texts->details.c_str();
      err->private_data = texts.release();
      err->release = [](crossdock_error* e) {
        delete static_cast<Texts*>(e->private_data);
        e->release = nullptr;
      };
    } catch (...) {
      err->message = "there is no memory left for the message of an error";
    }
    return code_;
  }

 private:
  crossdock_code code_;
  bool retry_ = false;
  std::optional<std::uint64_t> offset_, row_;
  std::string message_, details_;
};

/* Calls `f` with an empty error. Throws the error if `f` fails. */
template <std::invocable<crossdock_error*> F>
void check(F&& f) {
  crossdock_error err{};
  err.struct_size = sizeof err;
  if (crossdock_code code = f(&err); code != CROSSDOCK_OK) throw Error::take(code, err);
}

/* Calls `f`, and returns the exception that it throws as an error. An exception that is no Error is
 * a bug of the plugin (CROSSDOCK_PANICKED), except std::bad_alloc. */
template <std::invocable F>
crossdock_code guard(crossdock_error* err, F&& f) noexcept {
  auto write = [err](crossdock_code code, const char* message) {
    if (err) err->code = code, err->message = message;
    return code;
  };
  try {
    f();
    return CROSSDOCK_OK;
  } catch (const Error& error) {
    return error.write(err);
  } catch (const std::bad_alloc&) {
    return write(CROSSDOCK_OUT_OF_MEMORY, "there is no memory left");
  } catch (const std::exception& error) {
    try {
      return Error(CROSSDOCK_PANICKED, std::string("a C++ exception was caught: ") + error.what()).write(err);
    } catch (...) {
      return write(CROSSDOCK_PANICKED, "a C++ exception was caught");
    }
  } catch (...) {
    return write(CROSSDOCK_PANICKED, "a C++ exception of an unknown type was caught");
  }
}

/* ----------------------------------------------------------------------------------- owners --- */

/* How objects of a type are released. */
template <class T>
struct Releaser {
  static bool is_empty(const T& object) noexcept { return !object.release; }
  static void release(T& object) noexcept { object.release(&object); }
  static void forget(T& object) noexcept { object.release = nullptr; }
};

template <>
struct Releaser<ArrowDeviceArray> {
  static bool is_empty(const ArrowDeviceArray& object) noexcept { return !object.array.release; }
  static void release(ArrowDeviceArray& object) noexcept { object.array.release(&object.array); }
  static void forget(ArrowDeviceArray& object) noexcept { object.array.release = nullptr; }
};

/* A batch is empty if its array is, also if it has a schema. */
template <>
struct Releaser<crossdock_batch> {
  static bool is_empty(const crossdock_batch& object) noexcept { return !object.array.array.release; }
  static void release(crossdock_batch& object) noexcept {
    if (object.array.array.release) object.array.array.release(&object.array.array);
    if (object.schema.release) object.schema.release(&object.schema);
  }
  static void forget(crossdock_batch& object) noexcept {
    object.array.array.release = nullptr;
    object.schema.release = nullptr;
  }
};

/* An object of crossdock.h or of Arrow's C interfaces, which the destructor releases. */
template <class T>
class Owned {
  static constexpr bool IS_SIZED = requires(T object) { object.struct_size; };

 public:
  Owned() noexcept { clear(); }
  Owned(Owned&& other) noexcept : object_(other.object_) { Releaser<T>::forget(other.object_); }
  Owned& operator=(Owned&& other) noexcept {
    if (this != &other) {
      reset();
      object_ = other.object_;
      Releaser<T>::forget(other.object_);
    }
    return *this;
  }
  ~Owned() { release(); }

  /* Moves the object out of `*from`. */
  static Owned take(T* from) noexcept {
    Owned owned;
    std::size_t bytes = sizeof(T);
    if constexpr (IS_SIZED) bytes = from->struct_size < bytes ? from->struct_size : bytes;
    std::memcpy(static_cast<void*>(&owned.object_), from, bytes);
    if constexpr (IS_SIZED) owned.object_.struct_size = bytes;
    Releaser<T>::forget(*from);
    return owned;
  }

  /* Moves the object to the out parameter `*to`. */
  void move_to(T* to) noexcept {
    std::size_t bytes = sizeof(T);
    if constexpr (IS_SIZED) {
      const std::size_t size = to->struct_size;
      bytes = size < object_.struct_size ? size : object_.struct_size;
      std::memcpy(static_cast<void*>(to), &object_, bytes);
      to->struct_size = size;
    } else {
      std::memcpy(static_cast<void*>(to), &object_, bytes);
    }
    clear();
  }

  /* Whether there is an object. */
  explicit operator bool() const noexcept { return !Releaser<T>::is_empty(object_); }
  T* get() noexcept { return &object_; }
  const T* get() const noexcept { return &object_; }
  T* operator->() noexcept { return &object_; }
  const T* operator->() const noexcept { return &object_; }
  T& operator*() noexcept { return object_; }
  const T& operator*() const noexcept { return object_; }

  /* Releases the object. Returns the address of the empty object, for an out parameter. */
  T* out() noexcept { return reset(), &object_; }
  void reset() noexcept {
    release();
    clear();
  }

 private:
  void release() noexcept {
    if (!Releaser<T>::is_empty(object_)) Releaser<T>::release(object_);
  }
  void clear() noexcept {
    object_ = T{};
    if constexpr (IS_SIZED) object_.struct_size = sizeof(T);
  }

  T object_;
};

using Schema = Owned<ArrowSchema>;
using Batch = Owned<crossdock_batch>;
using Capsules = Owned<crossdock_capsules>;

/* The children of a schema or of an array. */
template <class T>
std::span<T* const> children(const T& parent) noexcept {
  return {parent.children, static_cast<std::size_t>(parent.n_children)};
}

/* The columns of a batch. */
inline std::span<ArrowArray* const> columns(const Batch& batch) noexcept { return children(batch->array.array); }

/* The values of an array in host memory whose values have a fixed width of sizeof(T) bytes. */
template <class T>
std::span<const T> values(const ArrowArray& array) noexcept {
  const T* first = static_cast<const T*>(array.buffers[1]);
  return first ? std::span<const T>(first + array.offset, static_cast<std::size_t>(array.length)) : std::span<const T>();
}

/* Whether value `i` of an array in host memory is null. Not for unions and run-end encoded arrays,
 * which have no validity bitmap. */
inline bool is_null(const ArrowArray& array, std::size_t i) noexcept {
  const auto* bits = array.n_buffers > 0 ? static_cast<const std::uint8_t*>(array.buffers[0]) : nullptr;
  const std::size_t bit = i + static_cast<std::size_t>(array.offset);
  return bits && array.null_count != 0 && !(bits[bit / 8] >> bit % 8 & 1);
}

/* ----------------------------------------------------------------------- schemas and arrays --- */

/* Keys and values of the metadata of a schema or a field. */
using Metadata = std::vector<std::pair<std::string, std::string>>;

/* Metadata in the form of ArrowSchema.metadata. */
inline std::string encode_metadata(const Metadata& metadata) {
  std::string bytes;
  auto append = [&bytes](const void* data, std::size_t n) { bytes.append(static_cast<const char*>(data), n); };
  auto append_length = [&append](std::size_t n) {
    if (n > INT32_MAX) throw Error(CROSSDOCK_UNSUPPORTED, "a key, a value or the number of keys exceeds 2 GiB");
    const auto length = static_cast<std::int32_t>(n);
    append(&length, sizeof length);
  };
  append_length(metadata.size());
  auto append_text = [&](const std::string& text) {
    append_length(text.size());
    append(text.data(), text.size());
  };
  for (const auto& [key, value] : metadata) append_text(key), append_text(value);
  return bytes;
}

/* The metadata of a schema or a field of another module. Empty if there is none. */
inline Metadata decode_metadata(const char* bytes) {
  Metadata metadata;
  if (!bytes) return metadata;
  auto read_length = [&bytes] {
    std::int32_t length = 0;
    std::memcpy(&length, bytes, sizeof length);
    bytes += sizeof length;
    return length < 0 ? std::size_t{0} : static_cast<std::size_t>(length);
  };
  auto read = [&] {
    const std::size_t length = read_length();
    bytes += length;
    return std::string(bytes - length, length);
  };
  for (std::size_t n = read_length(); n > 0; n--) {
    std::string key = read();
    metadata.emplace_back(std::move(key), read());
  }
  return metadata;
}

/* A field of a schema. */
struct Field {
  std::string name;
  std::string format; /* as ArrowSchema.format: "l" for int64, "u" for strings */
  bool nullable = true;
  std::vector<Field> children = {};
  Metadata metadata = {};
};

inline Schema make_schema(const Field& field) {
  struct Data {
    std::string name, format, metadata;
    std::vector<Schema> children;
    std::vector<ArrowSchema*> pointers;
  };
  auto data = std::make_unique<Data>();
  data->name = field.name;
  data->format = field.format;
  if (!field.metadata.empty()) data->metadata = encode_metadata(field.metadata);
  for (const Field& child : field.children) data->children.push_back(make_schema(child));
  for (Schema& child : data->children) data->pointers.push_back(child.get());
  Schema schema;
  schema->format = data->format.c_str();
  schema->name = data->name.c_str();
  schema->metadata = data->metadata.empty() ? nullptr : data->metadata.data();
  schema->flags = field.nullable ? ARROW_FLAG_NULLABLE : 0;
  schema->n_children = static_cast<std::int64_t>(data->pointers.size());
  schema->children = data->pointers.data();
  schema->private_data = data.release();
  schema->release = [](ArrowSchema* self) {
    delete static_cast<Data*>(self->private_data);
    self->release = nullptr;
  };
  return schema;
}

/* The schema of a table. */
inline Schema make_table_schema(std::vector<Field> fields, Metadata metadata = {}) {
  return make_schema({"", "+s", false, std::move(fields), std::move(metadata)});
}

/* Bytes, and what keeps them alive. */
struct Buffer {
  const void* data = nullptr;
  std::shared_ptr<const void> owner = {};
};

/* A buffer with the elements of a vector. */
template <class T>
  requires std::is_trivially_copyable_v<T> && (!std::same_as<T, bool>)
Buffer make_buffer(std::vector<T> elements) {
  auto owner = std::make_shared<const std::vector<T>>(std::move(elements));
  const void* data = owner->data();
  return {data, std::move(owner)};
}

/* The parts of an array. The buffers are those of Arrow's layout, beginning with the validity
 * bitmap, whose `data` is NULL if there are no nulls. */
struct ArrayParts {
  std::int64_t length = 0;
  std::vector<Buffer> buffers = {};
  std::int64_t null_count = 0;
  std::vector<ArrayParts> children = {};
};

/* Each array owns its buffers, so that a consumer can move children out. */
inline Owned<ArrowArray> make_array(ArrayParts parts) {
  struct Data {
    std::vector<Buffer> owners;
    std::vector<const void*> buffers;
    std::vector<Owned<ArrowArray>> children;
    std::vector<ArrowArray*> pointers;
  };
  auto data = std::make_unique<Data>();
  data->owners = std::move(parts.buffers);
  for (const Buffer& buffer : data->owners) data->buffers.push_back(buffer.data);
  for (ArrayParts& child : parts.children) data->children.push_back(make_array(std::move(child)));
  for (Owned<ArrowArray>& child : data->children) data->pointers.push_back(child.get());
  Owned<ArrowArray> array;
  array->length = parts.length;
  array->null_count = parts.null_count;
  array->n_buffers = static_cast<std::int64_t>(data->buffers.size());
  array->buffers = data->buffers.data();
  array->n_children = static_cast<std::int64_t>(data->pointers.size());
  array->children = data->pointers.data();
  array->private_data = data.release();
  array->release = [](ArrowArray* self) {
    delete static_cast<Data*>(self->private_data);
    self->release = nullptr;
  };
  return array;
}

/* A batch in host memory. The lengths of the columns are `n_rows`. */
inline Batch make_batch(std::int64_t n_rows, std::vector<ArrayParts> columns) {
  Owned<ArrowArray> array = make_array({n_rows, {Buffer{}}, 0, std::move(columns)});
  Batch batch;
  array.move_to(&batch->array.array);
  batch->array.device_type = ARROW_DEVICE_CPU;
  batch->array.device_id = -1;
  return batch;
}

}  // namespace crossdock

#endif /* CROSSDOCK_HPP */
