/*
 * crossdock-host.hpp: the Crossdock host for applications in C++20.
 *
 *     crossdock::Host host;
 *     crossdock::Session session(host);
 *     for (crossdock::Batch& batch : session.read("flights.vortex")) { ... }
 *
 * The classes own the handles and objects of crossdock-host.h. Failed calls throw crossdock::Error.
 * Objects may be destroyed in any order. The functions of Host and Session may be called on several
 * threads at the same time; those of Batches and BatchWriter on one thread at a time.
 *
 * Functions that callers pass (logs, progress, sinks) may be called on any thread. An exception
 * that a sink throws is the error of the call. The other functions must not throw.
 */
#ifndef CROSSDOCK_HOST_HPP
#define CROSSDOCK_HOST_HPP

#include <iterator>

#include "crossdock-settings.hpp"

namespace crossdock {

/* The version of the library, for example "1.0.0". */
inline std::string_view version() noexcept { return crossdock_version(); }

/* ------------------------------------------------------------------------------------- host --- */

struct HostSettings {
  /* Plugin files, or folders that contain plugins. They precede plugins from all other places. */
  std::vector<std::string> plugins = {};
  std::uint32_t flags = 0;   /* CROSSDOCK_HOST_... */
  std::uint32_t threads = 0; /* maximum threads of all plugins; 0: the number of processors */
  std::uint64_t memory_limit = 0; /* maximum bytes on all devices; 0: no limit */
  /* Receives messages that are at least as severe as `log_level`. Must not call the host. */
  std::function<void(std::int32_t level, std::string_view plugin, std::string_view message)> log = {};
  std::int32_t log_level = CROSSDOCK_LOG_WARN;
};

/* A file that may be a plugin. Unknown texts are empty. */
struct Candidate {
  std::string path, origin, name, version, description, formats;
  crossdock_candidate_status status; /* CROSSDOCK_CANDIDATE_... */
  std::string reason, message;       /* why the file is not used */
};

/* Unreleased objects of one owner on one device. */
struct Leak {
  std::string account;
  crossdock_device device;
  std::uint64_t bytes, blocks, streams, events, references;
};

class Host {
 public:
  explicit Host(const HostSettings& settings = {}) {
    check([](crossdock_error* err) { return CROSSDOCK_CHECK_VERSION(err); });
    using Log = decltype(HostSettings::log);
    const std::vector<crossdock_str> plugins = detail::borrow(settings.plugins);
    crossdock_host_settings raw{};
    raw.struct_size = sizeof raw;
    raw.plugins = plugins.data();
    raw.n_plugins = plugins.size();
    raw.flags = settings.flags;
    raw.threads = settings.threads;
    raw.memory_limit = settings.memory_limit;
    raw.log_level = settings.log_level;
    if (settings.log) {
      raw.log = [](void* log, std::int32_t level, crossdock_str plugin, crossdock_str message) noexcept {
        (*static_cast<const Log*>(log))(level, view(plugin), view(message));
      };
      raw.log_release = [](void* log) noexcept { delete static_cast<const Log*>(log); };
      raw.log_data = new Log(settings.log);
    }
    crossdock_host_handle* host = nullptr;
    check([&](crossdock_error* err) { return crossdock_host_create(&raw, &host, err); });
    host_.reset(host);
  }

  /* All files that may be plugins, in order of precedence. With `load`, loads and tries the
   * plugins. Adds messages about places that could not be searched to `warnings` unless it is NULL.
   * */
  std::vector<Candidate> candidates(bool load = false, std::vector<std::string>* warnings = nullptr) const {
    Owned<crossdock_candidates> list;
    check([&](crossdock_error* err) { return crossdock_host_candidates(get(), load ? 1 : 0, list.out(), err); });
    for (std::size_t i = 0; warnings && i < list->n_warnings; i++) warnings->push_back(detail::text(list->warnings[i]));
    return detail::map(list->candidates, list->n_candidates, [](const crossdock_candidate& raw) {
      using detail::text;
      return Candidate{text(raw.path),        text(raw.origin),  text(raw.name), text(raw.version),
                       text(raw.description), text(raw.formats), raw.status,     text(raw.reason),
                       text(raw.message)};
    });
  }

  /* Loads a plugin. Without this call, a plugin is loaded when it is first used. */
  void load(std::string_view plugin) const {
    check([&](crossdock_error* err) { return crossdock_host_load(get(), str(plugin), err); });
  }

  /* The sums of all allocations and copies. */
  crossdock_ledger ledger() const {
    crossdock_ledger ledger{};
    ledger.struct_size = sizeof ledger;
    check([&](crossdock_error* err) { return crossdock_host_ledger(get(), &ledger, err); });
    return ledger;
  }

  /* Waits until unused instances have been destroyed, and lists the unreleased objects. */
  std::vector<Leak> settle() const {
    Owned<crossdock_leaks> list;
    check([&](crossdock_error* err) { return crossdock_host_settle(get(), list.out(), err); });
    return detail::map(list->leaks, list->n_leaks, [](const crossdock_leak& raw) {
      return Leak{detail::text(raw.account), raw.device, raw.bytes, raw.blocks, raw.streams, raw.events, raw.references};
    });
  }

  crossdock_host_handle* get() const noexcept { return host_.get(); }

 private:
  struct Destroy {
    void operator()(crossdock_host_handle* host) const noexcept { crossdock_host_destroy(host); }
  };
  std::unique_ptr<crossdock_host_handle, Destroy> host_;
};

/* ---------------------------------------------------------------------------------- reading --- */

/* A stream of batches with one schema, on the session's device. A range that is passed once. */
class Batches {
 public:
  Batches(Owned<crossdock_batch_stream> stream, std::unique_ptr<const detail::Progress> progress) noexcept
      : progress_(std::move(progress)), stream_(std::move(stream)) {}

  Schema schema() {
    Schema schema;
    check([&](crossdock_error* err) { return stream_->get_schema(stream_.get(), schema.out(), err); });
    return schema;
  }

  /* The next batch, or an empty one at the end. */
  Batch next() {
    Batch batch;
    if (is_at_end_) return batch;
    is_at_end_ = true; /* also after an error */
    check([&](crossdock_error* err) { return stream_->get_next(stream_.get(), nullptr, batch.out(), err); });
    is_at_end_ = !batch;
    return batch;
  }

  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;

    Iterator() = default;
    explicit Iterator(Batches& batches) : batches_(&batches) { ++*this; }
    Batch& operator*() const noexcept { return batches_->current_; }
    Iterator& operator++() { return batches_->current_ = batches_->next(), *this; }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const noexcept { return !batches_->current_; }

   private:
    Batches* batches_ = nullptr;
  };

  Iterator begin() { return Iterator(*this); }
  std::default_sentinel_t end() const noexcept { return {}; }

 private:
  std::unique_ptr<const detail::Progress> progress_; /* used until the stream has been released */
  Owned<crossdock_batch_stream> stream_;
  Batch current_;
  bool is_at_end_ = false;
};

/* ---------------------------------------------------------------------------------- writing --- */

/* Receives the bytes of an output in order. */
using SinkFunction = std::function<void(std::span<const std::byte>)>;

/* Writes batches. The output appears when `finish` succeeds. If the writer is destroyed before, or
 * if a call fails, the output is discarded. */
class BatchWriter {
 public:
  explicit BatchWriter(Owned<crossdock_writer> writer) noexcept : writer_(std::move(writer)) {}

  /* Returns the capsules of the batch; none if the format writes bytes. */
  Capsules write(Batch batch) {
    Capsules capsules;
    check([&](crossdock_error* err) {
      return writer_->write(writer_.get(), nullptr, batch.get(), capsules.out(), err);
    });
    return capsules;
  }

  Capsules finish() {
    Capsules capsules;
    check([&](crossdock_error* err) { return writer_->finish(writer_.get(), nullptr, capsules.out(), err); });
    return capsules;
  }

 private:
  Owned<crossdock_writer> writer_;
};

struct ColumnVerdict {
  std::string name;
  crossdock_verdict verdict; /* CROSSDOCK_ZERO_COPY, ... */
  crossdock_device to;
  std::string reason;
};

struct ConvertSettings {
  std::string from = {}, to = {}; /* plugins or formats; if empty, recognised */
  std::vector<std::string> via = {};
  std::vector<std::string> columns = {}; /* none: all columns */
  OptionList read_options = {}, write_options = {}, storage_options = {};
  detail::Progress progress = {};
};

struct Stage {
  std::string kind, plugin, format;
  std::uint64_t rows, batches, bytes, time_ns;
  std::uint64_t copied_h2d, copied_d2h, copied_d2d, copied_h2h; /* bytes */
};

struct Report {
  std::uint64_t rows, batches, bytes, copied, time_ns;
  std::vector<Stage> stages;
};

/* A buffer of a table that was taken apart. `owner` keeps the bytes alive and unchanged. */
struct ReceivedBuffer {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

/* ---------------------------------------------------------------------------------- session --- */

struct SessionSettings {
  crossdock_device device = CPU;
  /* CROSSDOCK_VALIDATE_LAYOUT or _FULL, for all data. Otherwise, data from files is validated
   * fully, and the layout of structs in memory. */
  std::optional<std::uint32_t> validate = {};
  std::uint64_t byte_budget = 0; /* maximum bytes that a call should use at once; 0: no limit */
};

class Session {
 public:
  explicit Session(const Host& host, const SessionSettings& settings = {}) {
    crossdock_session_settings raw{};
    raw.struct_size = sizeof raw;
    raw.device = settings.device;
    raw.flags = settings.validate ? CROSSDOCK_SESSION_VALIDATE : 0;
    raw.validate = settings.validate.value_or(0);
    raw.byte_budget = settings.byte_budget;
    crossdock_session* session = nullptr;
    check([&](crossdock_error* err) { return crossdock_session_create(host.get(), &raw, &session, err); });
    session_.reset(session);
  }

  /* Cancels all current and future work of the session. May be called in a signal handler. */
  void cancel() const noexcept { crossdock_session_cancel(get()); }

  /* Reads a file or a URI. */
  Batches read(std::string_view path, const ReadSettings& settings = {}) const {
    return open(settings, [&](auto* raw, auto* out, auto* err) {
      return crossdock_session_read_path(get(), str(path), raw, out, err);
    });
  }

  /* Reads bytes in memory without copying them. `owner` keeps them alive and unchanged. */
  Batches read_bytes(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                     const ReadSettings& settings = {}) const {
    auto kept = std::make_unique<std::shared_ptr<const void>>(std::move(owner));
    return open(settings, [&](auto* raw, auto* out, auto* err) {
      auto release = [](void* data) noexcept { delete static_cast<std::shared_ptr<const void>*>(data); };
      return crossdock_session_read_bytes(get(), bytes.data(), bytes.size(), release, kept.release(), raw, out, err);
    });
  }

  /* Reads from a source of the application. */
  Batches read_source(Owned<crossdock_source> source, const ReadSettings& settings = {}) const {
    return open(settings, [&](auto* raw, auto* out, auto* err) {
      return crossdock_session_read_source(get(), source.get(), raw, out, err);
    });
  }

  /* Reads capsules. `settings.format` is required. */
  Batches read_capsules(Capsules capsules, const ReadSettings& settings) const {
    return open(settings, [&](auto* raw, auto* out, auto* err) {
      return crossdock_session_read_capsules(get(), capsules->capsules, capsules->n_capsules, raw, out, err);
    });
  }

  /* Reads inputs of one schema, one after another, as Arrow's stream of batches on the session's
   * device. Batches are read ahead. `settings.progress` must be empty, because the stream may
   * outlive the caller. */
  Owned<ArrowDeviceArrayStream> scan(const std::vector<std::string>& paths, const ReadSettings& settings = {}) const {
    return scan_with<ArrowDeviceArrayStream>(crossdock_session_scan, paths, settings);
  }

  /* Like `scan`, with batches in host memory. */
  Owned<ArrowArrayStream> scan_to_host(const std::vector<std::string>& paths, const ReadSettings& settings = {}) const {
    return scan_with<ArrowArrayStream>(crossdock_session_scan_to_host, paths, settings);
  }

  /* The number of rows of a batch, also if it is on the device. */
  std::uint64_t count_rows(const Batch& batch) const {
    std::uint64_t n = 0;
    check([&](crossdock_error* err) { return crossdock_session_count_rows(get(), batch.get(), &n, err); });
    return n;
  }

  /* Writes a file. */
  BatchWriter write(std::string_view path, const ArrowSchema& schema, const WriteSettings& settings = {}) const {
    return begin(settings, [&](auto* raw, auto* out, auto* err) {
      return crossdock_session_write_path(get(), str(path), &schema, raw, out, err);
    });
  }

  /* Writes to a function. `name` is for messages, and its extension chooses the format if
   * `settings.format` is empty. */
  BatchWriter write_to(SinkFunction function, std::string name, const ArrowSchema& schema,
                       const WriteSettings& settings = {}) const {
    struct Target {
      SinkFunction function;
      std::string name;
    };
    auto target = std::make_unique<Target>(Target{std::move(function), std::move(name)});
    Owned<crossdock_sink> sink;
    sink->name = str(target->name);
    sink->write = [](crossdock_sink* self, const void* from, std::size_t bytes, crossdock_error* err) noexcept {
      return guard(err, [&] {
        static_cast<Target*>(self->private_data)->function({static_cast<const std::byte*>(from), bytes});
      });
    };
    sink->private_data = target.release();
    sink->release = [](crossdock_sink* self) noexcept {
      delete static_cast<Target*>(self->private_data);
      self->release = nullptr;
    };
    return begin(settings, [&](auto* raw, auto* out, auto* err) {
      return crossdock_session_write_sink(get(), sink.get(), &schema, raw, out, err);
    });
  }

  /* Creates a writer of capsules. `settings.format` is required. */
  BatchWriter write_capsules(const ArrowSchema& schema, const WriteSettings& settings) const {
    return begin(settings, [&](auto* raw, auto* out, auto* err) {
      return crossdock_session_write_capsules(get(), &schema, raw, out, err);
    });
  }

  /* Predicts how columns on the device `from` would be written. `settings.format` is required. */
  std::vector<ColumnVerdict> plan(const ArrowSchema& schema, crossdock_device from, const WriteSettings& settings) const {
    const detail::RawWriteSettings raw(settings);
    Owned<crossdock_plan> plan;
    check([&](crossdock_error* err) {
      return crossdock_session_plan(get(), &schema, from, raw.get(), plan.out(), err);
    });
    return detail::map(plan->columns, plan->n_columns, [](const crossdock_column_plan& column) {
      return ColumnVerdict{detail::text(column.name), column.verdict, column.to, detail::text(column.reason)};
    });
  }

  /* Converts a file or a URI to a file, which appears when it is complete. */
  Report convert(std::string_view input, std::string_view output, const ConvertSettings& settings = {}) const {
    const auto via = detail::borrow(settings.via), columns = detail::borrow(settings.columns);
    const auto read_options = detail::borrow(settings.read_options), write_options = detail::borrow(settings.write_options);
    const auto storage_options = detail::borrow(settings.storage_options);
    crossdock_convert_settings raw{};
    raw.struct_size = sizeof raw;
    raw.from = str(settings.from);
    raw.to = str(settings.to);
    raw.via = via.data();
    raw.n_via = via.size();
    raw.columns = columns.data();
    raw.n_columns = columns.size();
    raw.read_options = read_options.data();
    raw.n_read_options = read_options.size();
    raw.write_options = write_options.data();
    raw.n_write_options = write_options.size();
    raw.storage_options = storage_options.data();
    raw.n_storage_options = storage_options.size();
    if (settings.progress) {
      raw.progress = detail::report_progress;
      raw.progress_data = const_cast<detail::Progress*>(&settings.progress);
    }
    Owned<crossdock_report> report;
    check([&](crossdock_error* err) {
      return crossdock_session_convert(get(), str(input), str(output), &raw, report.out(), err);
    });
    auto stages = detail::map(report->stages, report->n_stages, [](const crossdock_stage& stage) {
      using detail::text;
      return Stage{text(stage.kind), text(stage.plugin), text(stage.format), stage.rows,       stage.batches,
                   stage.bytes,      stage.time_ns,      stage.copied_h2d,   stage.copied_d2h, stage.copied_d2d,
                   stage.copied_h2h};
    });
    return {report->rows, report->batches, report->bytes, report->copied, report->time_ns, std::move(stages)};
  }

  /* Takes a table apart into a header and buffers, for another process. */
  Owned<crossdock_parts> to_parts(Owned<ArrowDeviceArrayStream> stream) const {
    Owned<crossdock_parts> parts;
    check([&](crossdock_error* err) { return crossdock_session_to_parts(get(), stream.get(), parts.out(), err); });
    return parts;
  }

  /* Rebuilds a table on the session's device from the header and the buffers of its parts. */
  Owned<ArrowDeviceArrayStream> from_parts(std::span<const std::byte> header, const std::vector<ReceivedBuffer>& buffers) const {
    using Owner = std::shared_ptr<const void>;
    std::vector<std::unique_ptr<Owner>> owners;
    std::vector<crossdock_received> received;
    for (const ReceivedBuffer& buffer : buffers) {
      owners.push_back(std::make_unique<Owner>(buffer.owner));
      auto release = [](void* owner) noexcept { delete static_cast<Owner*>(owner); };
      received.push_back(
          {sizeof(crossdock_received), buffer.bytes.data(), buffer.bytes.size(), release, owners.back().get()});
    }
    for (std::unique_ptr<Owner>& owner : owners) (void)owner.release(); /* passes to the library */
    Owned<ArrowDeviceArrayStream> stream;
    check([&](crossdock_error* err) {
      return crossdock_session_from_parts(get(), header.data(), header.size(), received.data(), received.size(),
                                          stream.out(), err);
    });
    return stream;
  }

  crossdock_session* get() const noexcept { return session_.get(); }

 private:
  struct Destroy {
    void operator()(crossdock_session* session) const noexcept { crossdock_session_destroy(session); }
  };

  template <class F>
  static Batches open(const ReadSettings& settings, F f) {
    auto progress = std::make_unique<const detail::Progress>(settings.progress);
    const detail::RawReadSettings raw(settings, progress.get());
    Owned<crossdock_batch_stream> stream;
    check([&](crossdock_error* err) { return f(raw.get(), stream.out(), err); });
    return Batches(std::move(stream), std::move(progress));
  }

  template <class F>
  static BatchWriter begin(const WriteSettings& settings, F f) {
    const detail::RawWriteSettings raw(settings);
    Owned<crossdock_writer> writer;
    check([&](crossdock_error* err) { return f(raw.get(), writer.out(), err); });
    return BatchWriter(std::move(writer));
  }

  template <class S, class F>
  Owned<S> scan_with(F scan, const std::vector<std::string>& paths, const ReadSettings& settings) const {
    if (settings.progress) throw Error(CROSSDOCK_INVALID_ARGUMENT, "a scan reports no progress, but `progress` is set");
    const detail::RawReadSettings raw(settings, nullptr);
    const std::vector<crossdock_str> borrowed = detail::borrow(paths);
    Owned<S> stream;
    check([&](crossdock_error* err) {
      return scan(get(), borrowed.data(), borrowed.size(), raw.get(), stream.out(), err);
    });
    return stream;
  }

  std::unique_ptr<crossdock_session, Destroy> session_;
};

}  // namespace crossdock

#endif /* CROSSDOCK_HOST_HPP */
