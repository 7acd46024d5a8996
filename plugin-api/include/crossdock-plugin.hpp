/*
 * crossdock-plugin.hpp: plugins in C++20 that read or write formats of bytes.
 *
 *     class Lines : public crossdock::Plugin { ... };
 *     CROSSDOCK_PLUGIN(Lines, .name = "lines", .version = "1.0.0", ...)
 *
 * The functions of the ABI check their arguments and call the virtual functions of the class. If
 * one of these throws an exception, the function of the ABI returns it as an error. A plugin offers
 * other interfaces of crossdock.h, such as crossdock.encoding/1, by overriding `get_interface`.
 */
#ifndef CROSSDOCK_PLUGIN_HPP
#define CROSSDOCK_PLUGIN_HPP

#include "crossdock.hpp"

namespace crossdock {

/* -------------------------------------------------------------------------- the host's side --- */

/* The settings of a call. Valid until the function that received it returns. */
class Call {
 public:
  explicit Call(const crossdock_call* call) noexcept : call_(call) {}

  /* Throws if the caller has cancelled the call. Readers and writers are checked for each batch. If
   * a batch takes longer than 100 ms, call this function in between. */
  void check_cancelled() const {
    if (CROSSDOCK_IS_CANCELLED(call_)) throw Error(CROSSDOCK_CANCELLED, "the call was cancelled");
  }
  /* Reports the bytes of the input that were processed; 0 for an unknown total. */
  void progress(std::uint64_t bytes_done, std::uint64_t bytes_total) const {
    if (CROSSDOCK_HAS(call_, progress_data) && call_->progress)
      call_->progress(call_->progress_data, bytes_done, bytes_total);
  }
  const crossdock_call* get() const noexcept { return call_; }

 private:
  const crossdock_call* call_;
};

/* An input of bytes. `read` may be called on several threads if the size is known. If it is
 * unknown, each read must begin where the previous one ended. */
class Source {
 public:
  explicit Source(Owned<crossdock_source> source) noexcept : source_(std::move(source)) {}

  std::string_view name() const noexcept { return view(source_->name); }
  /* Nothing if the size is unknown, as of a pipe. */
  std::optional<std::uint64_t> size() const noexcept {
    return source_->bytes < 0 ? std::nullopt : std::optional(static_cast<std::uint64_t>(source_->bytes));
  }
  /* Returns the number of bytes read, which is less than the size of `to` only at the end. */
  std::size_t read(std::uint64_t offset, std::span<std::byte> to) {
    std::size_t n = 0;
    check([&](crossdock_error* err) { return source_->read_at(source_.get(), offset, to.data(), to.size(), &n, err); });
    return n;
  }
  /* Fills `to`. Throws CROSSDOCK_BAD_DATA if the input ends before. */
  void read_exactly(std::uint64_t offset, std::span<std::byte> to) {
    const std::size_t n = read(offset, to);
    if (n == to.size()) return;
    throw Error(CROSSDOCK_BAD_DATA, "the input ends at byte " + std::to_string(offset + n) + ", expected " +
                                        std::to_string(to.size() - n) + " more bytes")
        .at_offset(offset + n);
  }

 private:
  Owned<crossdock_source> source_;
};

/* A destination for bytes. */
class Sink {
 public:
  explicit Sink(Owned<crossdock_sink> sink) noexcept : sink_(std::move(sink)) {}

  std::string_view name() const noexcept { return view(sink_->name); }
  void write(std::span<const std::byte> bytes) {
    check([&](crossdock_error* err) { return sink_->write(sink_.get(), bytes.data(), bytes.size(), err); });
  }

 private:
  Owned<crossdock_sink> sink_;
};

/* Memory of the host, which its ledger counts and its limit includes. */
template <class T>
struct Allocation {
  std::span<T> elements; /* not initialised */
  Buffer buffer;
};

/* The host of an instance. */
class PluginHost {
 public:
  explicit PluginHost(const crossdock_host* host) : host_(host) {
    memory_ = static_cast<const crossdock_memory*>(host->get_interface(host, CROSSDOCK_HOST_MEMORY_ID));
    log_ = static_cast<const crossdock_host_log*>(host->get_interface(host, CROSSDOCK_HOST_LOG_ID));
    if (!memory_) throw Error(CROSSDOCK_WRONG_VERSION, "the host does not offer " CROSSDOCK_HOST_MEMORY_ID);
  }

  /* Allocates host memory. The host is retained until the buffer is released. */
  template <class T>
    requires std::is_trivially_copyable_v<T>
  Allocation<T> allocate(std::size_t n) const {
    if (n > SIZE_MAX / sizeof(T)) throw Error(CROSSDOCK_OUT_OF_MEMORY, "an array is larger than the address space");
    struct Block {
      const crossdock_host* host;
      const crossdock_memory* memory;
      crossdock_allocation allocation{};
      ~Block() {
        if (allocation.block) memory->free(memory, allocation.block, nullptr, 0, 0);
        host->release(host);
      }
    };
    host_->retain(host_);
    std::shared_ptr<Block> block;
    try {
      block = std::make_shared<Block>(host_, memory_);
    } catch (...) {
      host_->release(host_);
      throw;
    }
    check([&](crossdock_error* err) {
      return memory_->alloc(memory_, CPU, n * sizeof(T), alignof(T), nullptr, 0, &block->allocation, err);
    });
    T* first = static_cast<T*>(block->allocation.address);
    return {{first, n}, {first, std::move(block)}};
  }

  /* Writes a line to the host's log. `level` is CROSSDOCK_LOG_*. */
  void log(std::int32_t level, std::string_view message) const noexcept {
    if (log_) log_->write(log_, level, str(message));
  }
  const crossdock_host* get() const noexcept { return host_; }

 private:
  const crossdock_host* host_; /* valid until the instance has been destroyed */
  const crossdock_memory* memory_;
  const crossdock_host_log* log_;
};

/* ------------------------------------------------------------------------ the plugin's side --- */

inline constexpr ArrowDeviceType CPU_ONLY[] = {ARROW_DEVICE_CPU};

/* A description of a format. The lists must be constants. */
struct FormatInfo {
  std::string_view name;
  std::string_view description; /* one line for users */
  std::span<const crossdock_str> extensions = {};
  std::span<const crossdock_magic> magics = {};
  std::span<const crossdock_option_info> options = {};
  std::uint32_t flags = CROSSDOCK_FORMAT_BYTES;
};

/* A format with batches in host memory. */
constexpr crossdock_format make_format(const FormatInfo& info) {
  crossdock_format format{};
  format.struct_size = sizeof format;
  format.name = str(info.name);
  format.description = str(info.description);
  format.flags = info.flags;
  format.magics = info.magics.data();
  format.n_magics = info.magics.size();
  format.extensions = info.extensions.data();
  format.n_extensions = info.extensions.size();
  format.device_types = CPU_ONLY;
  format.n_device_types = 1;
  format.options = info.options.data();
  format.n_options = info.options.size();
  return format;
}

constexpr crossdock_option_info make_option(std::string_view key, std::string_view description) {
  return {sizeof(crossdock_option_info), str(key), str(description)};
}

/* Options of a call. All keys are options of the format, each at most once. */
class Options {
 public:
  explicit Options(std::span<const crossdock_option> options) noexcept : options_(options) {}

  std::optional<std::string_view> get(std::string_view key) const noexcept {
    for (const crossdock_option& option : options_)
      if (view(option.key) == key) return view(option.value);
    return std::nullopt;
  }

 private:
  std::span<const crossdock_option> options_;
};

/* What a caller reads. Valid until `open` returns. */
struct ReadRequest {
  std::string_view format;
  std::vector<Source> sources; /* one, unless the format has CROSSDOCK_FORMAT_SEVERAL */
  Options options;
  const ArrowSchema* schema; /* for formats that store no types: the expected schema, or NULL */
  const crossdock_read_request& raw;
};

/* A stream of batches with one schema. One thread at a time calls its functions. */
class Reader {
 public:
  virtual ~Reader() = default;
  virtual Schema schema() = 0;
  /* Returns the next batch, or an empty one at the end. */
  virtual Batch next(const Call& call) = 0;
  /* The number of rows of all batches, if it is known in advance. */
  virtual std::optional<std::uint64_t> n_rows() const { return std::nullopt; }
  /* The parts of the request that the batches honour (CROSSDOCK_HONOURS_*). The host does the rest.
   * */
  virtual std::uint32_t honoured() const { return 0; }
};

/* Writes batches. One thread at a time calls its functions. If `finish` was not called, the host
 * discards the output. */
class Writer {
 public:
  virtual ~Writer() = default;
  virtual void write(const Call& call, Batch batch) = 0;
  virtual void finish(const Call& call) = 0;
};

/* What writing does with a column. */
struct ColumnPlan {
  crossdock_verdict verdict = CROSSDOCK_CONVERTED;
  std::string reason = {}; /* for CROSSDOCK_CANNOT: why, and what to do instead */
};

/* An instance of a plugin. Several threads may call its functions at the same time. */
class Plugin {
 public:
  explicit Plugin(const crossdock_host* host) : host_(host) {}
  virtual ~Plugin() = default;
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  /* The formats that the plugin reads. Constants. */
  virtual std::span<const crossdock_format> read_formats() const { return {}; }
  virtual std::unique_ptr<Reader> open(const Call& call, ReadRequest request);

  /* The formats that the plugin writes. Constants. */
  virtual std::span<const crossdock_format> write_formats() const { return {}; }
  /* Plans column `i` of a table. `begin` is not called if a verdict is CROSSDOCK_CANNOT. */
  virtual ColumnPlan plan(std::string_view format, const ArrowSchema& schema, std::size_t i,
                          const Options& options) const;
  virtual std::unique_ptr<Writer> begin(const Call& call, std::string_view format, const ArrowSchema& schema,
                                        const Options& options, Sink sink);

  /* An interface of crossdock.h other than the importer and the exporter; NULL if there is none. */
  virtual const void* get_interface(std::string_view id) const;

 protected:
  const PluginHost& host() const noexcept { return host_; }

 private:
  PluginHost host_;
};

inline std::unique_ptr<Reader> Plugin::open(const Call&, ReadRequest) {
  throw Error(CROSSDOCK_UNSUPPORTED, "the plugin reads no format");
}

inline ColumnPlan Plugin::plan(std::string_view, const ArrowSchema&, std::size_t, const Options&) const { return {}; }

inline std::unique_ptr<Writer> Plugin::begin(const Call&, std::string_view, const ArrowSchema&, const Options&, Sink) {
  throw Error(CROSSDOCK_UNSUPPORTED, "the plugin writes no format");
}

inline const void* Plugin::get_interface(std::string_view) const { return nullptr; }

/* --------------------------------------------------------------------- functions of the ABI --- */

namespace detail {

inline Plugin& plugin(crossdock_instance* instance) noexcept { return *reinterpret_cast<Plugin*>(instance); }

inline std::string quoted(std::string_view text) {
  std::string quoted = "'";
  for (char c : text.substr(0, 200)) quoted += static_cast<unsigned char>(c) < ' ' ? '?' : c;
  return quoted += '\'';
}

inline void check_call(const crossdock_call* call) {
  const crossdock_code code = CROSSDOCK_CHECK_CALL(call);
  if (code == CROSSDOCK_OK) return;
  throw Error(code, "the call has a reserved field that is not 0, or an unknown validation");
}

/* Finds a format, and checks that it has the options. */
inline Options check_options(std::span<const crossdock_format> formats, crossdock_str name,
                             std::span<const crossdock_option> options) {
  const crossdock_format* format = nullptr;
  for (const crossdock_format& candidate : formats)
    if (view(candidate.name) == view(name)) format = &candidate;
  if (!format) throw Error(CROSSDOCK_INVALID_ARGUMENT, "the plugin has no format " + quoted(view(name)));
  for (const crossdock_option& option : options) {
    std::string known;
    bool is_known = false;
    for (std::size_t i = 0; i < format->n_options; i++) {
      is_known = is_known || view(format->options[i].key) == view(option.key);
      known += (i == 0 ? "" : ", ") + std::string(view(format->options[i].key));
    }
    if (is_known) continue;
    throw Error(CROSSDOCK_INVALID_ARGUMENT,
                std::string(view(name)) + " has no option " + quoted(view(option.key)) +
                    (known.empty() ? "; it has none" : "; it has " + known));
  }
  return Options(options);
}

inline std::string columns_of(const ArrowSchema& schema) {
  std::string text = "[";
  for (const ArrowSchema* column : children(schema)) {
    if (text.size() > 1) text += ", ";
    text += quoted(column->name ? column->name : "") + ": " + column->format;
    if (!(column->flags & ARROW_FLAG_NULLABLE)) text += " not null";
  }
  return text += ']';
}

/* Whether values of the type `got` are values of the type `expected`. Names are compared only in
 * structs, because the names of other children, such as the items of a list, have no meaning. */
inline bool fits(const ArrowSchema& got, const ArrowSchema& expected) {
  if (std::string_view(got.format) != expected.format || got.n_children != expected.n_children) return false;
  if (!got.dictionary != !expected.dictionary) return false;
  if (got.dictionary && !fits(*got.dictionary, *expected.dictionary)) return false;
  for (std::int64_t i = 0; i < got.n_children; i++) {
    const ArrowSchema &child = *got.children[i], &wanted = *expected.children[i];
    const bool may_be_null = (child.flags & ARROW_FLAG_NULLABLE) != 0;
    if (may_be_null && !(wanted.flags & ARROW_FLAG_NULLABLE)) return false;
    const std::string_view name = child.name ? child.name : "";
    if (std::string_view(got.format) == "+s" && name != (wanted.name ? wanted.name : "")) return false;
    if (!fits(child, wanted)) return false;
  }
  return true;
}

inline Batch next_batch(Reader& reader, const crossdock_call* call) {
  check_call(call);
  Call(call).check_cancelled();
  return reader.next(Call(call));
}

inline Owned<crossdock_batch_stream> make_stream(std::unique_ptr<Reader> reader) {
  Owned<crossdock_batch_stream> stream;
  stream->get_schema = [](crossdock_batch_stream* self, ArrowSchema* out, crossdock_error* err) noexcept {
    return guard(err, [&] { static_cast<Reader*>(self->private_data)->schema().move_to(out); });
  };
  stream->get_next = [](crossdock_batch_stream* self, const crossdock_call* call, crossdock_batch* out,
                        crossdock_error* err) noexcept {
    return guard(err, [&] {
      Batch batch = next_batch(*static_cast<Reader*>(self->private_data), call);
      if (batch) batch.move_to(out);
    });
  };
  stream->release = [](crossdock_batch_stream* self) noexcept {
    delete static_cast<Reader*>(self->private_data);
    self->release = nullptr;
  };
  const std::optional<std::uint64_t> n_rows = reader->n_rows();
  stream->honoured = reader->honoured() | (n_rows ? CROSSDOCK_HAS_ROW_COUNT : 0);
  stream->n_rows = n_rows.value_or(0);
  stream->private_data = reader.release();
  return stream;
}

inline Owned<crossdock_writer> make_writer(std::unique_ptr<Writer> writer) {
  Owned<crossdock_writer> result;
  result->write = [](crossdock_writer* self, const crossdock_call* call, crossdock_batch* batch, crossdock_capsules*,
                     crossdock_error* err) noexcept {
    Batch owned = Batch::take(batch);
    return guard(err, [&] {
      check_call(call);
      Call(call).check_cancelled();
      static_cast<Writer*>(self->private_data)->write(Call(call), std::move(owned));
    });
  };
  result->finish = [](crossdock_writer* self, const crossdock_call* call, crossdock_capsules*,
                      crossdock_error* err) noexcept {
    return guard(err, [&] {
      check_call(call);
      static_cast<Writer*>(self->private_data)->finish(Call(call));
    });
  };
  result->release = [](crossdock_writer* self) noexcept {
    delete static_cast<Writer*>(self->private_data);
    self->release = nullptr;
  };
  result->private_data = writer.release();
  return result;
}

inline crossdock_code read_formats(crossdock_instance* instance, const crossdock_format** out, std::size_t* n_out,
                                   crossdock_error* err) noexcept {
  return guard(err, [&] {
    const auto formats = plugin(instance).read_formats();
    *out = formats.data();
    *n_out = formats.size();
  });
}

inline crossdock_code open(crossdock_instance* instance, const crossdock_call* call,
                           const crossdock_read_request* request, crossdock_batch_stream* out,
                           crossdock_error* err) noexcept {
  return guard(err, [&] {
    const crossdock_input& input = *request->input;
    std::vector<Source> sources;
    /* If there is no memory for the list, the sources that are not in it are released here. */
    Owned<crossdock_capsules> capsules;
    if (input.capsules) capsules = Owned<crossdock_capsules>::take(input.capsules);
    std::exception_ptr failed;
    for (std::size_t i = 0; input.sources && i < input.n_sources; i++) {
      auto source = Owned<crossdock_source>::take(CROSSDOCK_AT(input.sources, i));
      try {
        sources.emplace_back(std::move(source));
      } catch (...) {
        failed = std::current_exception();
      }
    }
    if (failed) std::rethrow_exception(failed);
    check_call(call);
    if (request->reserved != 0) throw Error(CROSSDOCK_INVALID_ARGUMENT, "a reserved field of the read request is not 0");
    if (sources.empty()) throw Error(CROSSDOCK_INVALID_ARGUMENT, "the input is capsules, expected bytes");
    const Options options =
        check_options(plugin(instance).read_formats(), request->format, {request->options, request->n_options});
    auto reader = plugin(instance).open(
        Call(call), {view(request->format), std::move(sources), options, request->schema, *request});
    if (request->schema) {
      const Schema schema = reader->schema();
      if (!fits(*schema, *request->schema))
        throw Error(CROSSDOCK_INVALID_ARGUMENT, "another schema: expected " + columns_of(*request->schema) + ", got " +
                                                    columns_of(*schema));
    }
    make_stream(std::move(reader)).move_to(out);
  });
}

inline crossdock_code write_formats(crossdock_instance* instance, const crossdock_format** out, std::size_t* n_out,
                                    crossdock_error* err) noexcept {
  return guard(err, [&] {
    const auto formats = plugin(instance).write_formats();
    *out = formats.data();
    *n_out = formats.size();
  });
}

inline crossdock_code plan(crossdock_instance* instance, const crossdock_call* call, crossdock_str format,
                           const ArrowSchema* schema, crossdock_device, const crossdock_option* options,
                           std::size_t n_options, crossdock_plan* out, crossdock_error* err) noexcept {
  struct Data {
    std::vector<std::string> texts;
    std::vector<crossdock_column_plan> columns;
  };
  return guard(err, [&] {
    check_call(call);
    const Options checked = check_options(plugin(instance).write_formats(), format, {options, n_options});
    auto data = std::make_unique<Data>();
    data->texts.reserve(children(*schema).size() * 2);
    for (std::size_t i = 0; i < children(*schema).size(); i++) {
      ColumnPlan planned = plugin(instance).plan(view(format), *schema, i, checked);
      const char* column = children(*schema)[i]->name;
      const std::string& name = data->texts.emplace_back(column ? column : "");
      const std::string& reason = data->texts.emplace_back(std::move(planned.reason));
      data->columns.push_back(
          {sizeof(crossdock_column_plan), str(name), planned.verdict, 0, CPU, str(reason)});
    }
    Owned<crossdock_plan> result;
    result->columns = data->columns.data();
    result->n_columns = data->columns.size();
    result->private_data = data.release();
    result->release = [](crossdock_plan* self) noexcept {
      delete static_cast<Data*>(self->private_data);
      self->release = nullptr;
    };
    result.move_to(out);
  });
}

inline crossdock_code begin(crossdock_instance* instance, const crossdock_call* call, crossdock_str format,
                            const ArrowSchema* schema, const crossdock_option* options, std::size_t n_options,
                            crossdock_sink* sink, crossdock_writer* out, crossdock_error* err) noexcept {
  Owned<crossdock_sink> owned;
  if (sink) owned = Owned<crossdock_sink>::take(sink);
  return guard(err, [&] {
    check_call(call);
    if (!owned) throw Error(CROSSDOCK_INVALID_ARGUMENT, "the format is written to a sink, which is missing");
    const Options checked = check_options(plugin(instance).write_formats(), format, {options, n_options});
    for (std::size_t i = 0; i < children(*schema).size(); i++) {
      const ColumnPlan planned = plugin(instance).plan(view(format), *schema, i, checked);
      if (planned.verdict != CROSSDOCK_CANNOT) continue;
      const char* name = children(*schema)[i]->name;
      throw Error(CROSSDOCK_UNSUPPORTED, "column " + quoted(name ? name : "") + ": " + planned.reason);
    }
    make_writer(plugin(instance).begin(Call(call), view(format), *schema, checked, Sink(std::move(owned)))).move_to(out);
  });
}

inline constexpr crossdock_importer IMPORTER = {sizeof(crossdock_importer), read_formats, open, nullptr};
inline constexpr crossdock_exporter EXPORTER = {sizeof(crossdock_exporter), write_formats, plan, begin};

inline const void* get_interface(crossdock_instance* instance, const char* id) noexcept {
  const std::string_view wanted = id;
  try {
    if (wanted == CROSSDOCK_IMPORTER_ID && !plugin(instance).read_formats().empty()) return &IMPORTER;
    if (wanted == CROSSDOCK_EXPORTER_ID && !plugin(instance).write_formats().empty()) return &EXPORTER;
    return plugin(instance).get_interface(wanted);
  } catch (...) {
    return nullptr;
  }
}

template <std::derived_from<Plugin> P>
crossdock_code create(const crossdock_host* host, crossdock_instance** out, crossdock_error* err) noexcept {
  return guard(err, [&] {
    Plugin* plugin = std::make_unique<P>(host).release();
    *out = reinterpret_cast<crossdock_instance*>(plugin);
  });
}

inline void destroy(crossdock_instance* instance) noexcept { delete &plugin(instance); }

}  // namespace detail
}  // namespace crossdock

#ifdef __clang__
#define CROSSDOCK_CXX_TOOLCHAIN __VERSION__
#else
#define CROSSDOCK_CXX_TOOLCHAIN "g++ " __VERSION__
#endif

/* Defines both symbols of a plugin, once in a shared library. `Class` derives from Plugin and has a
 * constructor with a const crossdock_host*. The other arguments initialise fields of
 * crossdock_plugin_meta, from `.name` to `.required`, in the order of that struct. */
#define CROSSDOCK_PLUGIN(Class, ...)                                                                                  \
  _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wmissing-field-initializers\"")                   \
  CROSSDOCK_EXPORT const crossdock_plugin_entry crossdock_plugin_v1 = {                                               \
      CROSSDOCK_PLUGIN_MAGIC, sizeof(crossdock_plugin_entry), CROSSDOCK_ABI_MAJOR, CROSSDOCK_ABI_MINOR, 0,            \
      crossdock::detail::create<Class>, crossdock::detail::destroy, crossdock::detail::get_interface};                \
  CROSSDOCK_EXPORT const crossdock_plugin_meta crossdock_plugin_meta_v1 = {                                           \
      .magic = CROSSDOCK_META_MAGIC, .struct_size = sizeof(crossdock_plugin_meta),                                    \
      .abi_major = CROSSDOCK_ABI_MAJOR, .abi_minor = CROSSDOCK_ABI_MINOR, .n_sizes = CROSSDOCK_META_N_SIZES,          \
      __VA_ARGS__, .sizes = CROSSDOCK_META_SIZES_INIT};                                                               \
  _Pragma("GCC diagnostic pop") static_assert(true)

#endif /* CROSSDOCK_PLUGIN_HPP */
