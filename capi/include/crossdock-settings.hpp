/*
 * crossdock-settings.hpp: settings of crossdock-host.hpp, and their form in the ABI.
 */
#ifndef CROSSDOCK_SETTINGS_HPP
#define CROSSDOCK_SETTINGS_HPP

#include <functional>

#include "crossdock-host.h"
#include "crossdock.hpp"

namespace crossdock {

/* ------------------------------------------------------------------------------------ lists --- */

namespace detail {

/* Texts in the form of the ABI, borrowed from strings. */
inline std::vector<crossdock_str> borrow(const std::vector<std::string>& texts) {
  std::vector<crossdock_str> borrowed;
  for (const std::string& text : texts) borrowed.push_back(str(text));
  return borrowed;
}

/* Elements of a list of the ABI whose elements have a `struct_size`. */
template <class T, class F>
auto map(const T* list, std::size_t n, F f) {
  std::vector<std::invoke_result_t<F, const T&>> mapped;
  for (std::size_t i = 0; i < n; i++) mapped.push_back(f(*CROSSDOCK_AT(list, i)));
  return mapped;
}

inline std::string text(crossdock_str borrowed) { return std::string(view(borrowed)); }

using Progress = std::function<void(std::uint64_t bytes_done, std::uint64_t bytes_total)>;

inline void report_progress(void* progress, std::uint64_t bytes_done, std::uint64_t bytes_total) noexcept {
  (*static_cast<const Progress*>(progress))(bytes_done, bytes_total);
}

}  // namespace detail

/* Keys and values, each key at most once. */
using OptionList = std::vector<std::pair<std::string, std::string>>;

namespace detail {

inline std::vector<crossdock_option> borrow(const OptionList& options) {
  std::vector<crossdock_option> borrowed;
  for (const auto& [key, value] : options) borrowed.push_back({str(key), str(value)});
  return borrowed;
}

}  // namespace detail

struct ReadSettings {
  std::string format = {}; /* a plugin or a format; if empty, the format is recognised */
  OptionList options = {};
  /* The schema of capsules, if their format does not describe it. Borrowed for the call. */
  const ArrowSchema* schema = nullptr;
  detail::Progress progress = {};
  /* The columns and fields to read, from the top-level column down: {{"a"}, {"point", "x"}}. */
  std::optional<std::vector<std::vector<std::string>>> columns = {};
  /* Ascending ranges of positions in the input. */
  std::optional<std::vector<crossdock_row_range>> rows = {};
  std::optional<std::uint64_t> limit = {}; /* the maximum number of rows */
  std::uint64_t batch_rows = 0; /* the maximum number of rows of a batch; 0: the batches of the input */
  std::vector<std::string> filters = {}; /* comparisons that all rows fulfil: "day >= 2024-02-29" */
  OptionList storage_options = {};       /* of the plugin that opens URIs */
  bool device_rows = false; /* numbers of rows may stay on the device (crossdock_batch.n_rows_device) */
};

namespace detail {

/* Settings in the form of the ABI, borrowed from `settings`. */
class RawReadSettings {
 public:
  RawReadSettings(const ReadSettings& settings, const Progress* progress)
      : options_(borrow(settings.options)),
        storage_options_(borrow(settings.storage_options)),
        filters_(borrow(settings.filters)) {
    raw_.struct_size = sizeof raw_;
    raw_.format = str(settings.format);
    raw_.options = options_.data();
    raw_.n_options = options_.size();
    raw_.schema = settings.schema;
    if (progress && *progress) {
      raw_.progress = report_progress;
      raw_.progress_data = const_cast<Progress*>(progress);
    }
    if (settings.columns) {
      raw_.flags |= CROSSDOCK_READ_COLUMNS;
      for (const std::vector<std::string>& path : *settings.columns) names_.push_back(borrow(path));
      for (const std::vector<crossdock_str>& path : names_) paths_.push_back({path.data(), path.size()});
    }
    if (settings.rows) {
      raw_.flags |= CROSSDOCK_READ_ROWS;
      raw_.rows = settings.rows->data();
      raw_.n_rows = settings.rows->size();
    }
    if (settings.limit) raw_.flags |= CROSSDOCK_READ_LIMIT;
    if (settings.device_rows) raw_.flags |= CROSSDOCK_READ_DEVICE_ROWS;
    raw_.columns = paths_.data();
    raw_.n_columns = paths_.size();
    raw_.limit = settings.limit.value_or(0);
    raw_.batch_rows = settings.batch_rows;
    raw_.filters = filters_.data();
    raw_.n_filters = filters_.size();
    raw_.storage_options = storage_options_.data();
    raw_.n_storage_options = storage_options_.size();
  }

  const crossdock_read_settings* get() const noexcept { return &raw_; }

 private:
  std::vector<crossdock_option> options_, storage_options_;
  std::vector<crossdock_str> filters_;
  std::vector<std::vector<crossdock_str>> names_;
  std::vector<crossdock_path> paths_;
  crossdock_read_settings raw_{};
};

}  // namespace detail

struct WriteSettings {
  std::string format = {}; /* a plugin or a format; if empty, the format is chosen by the extension */
  OptionList options = {};
};

namespace detail {

class RawWriteSettings {
 public:
  explicit RawWriteSettings(const WriteSettings& settings) : options_(borrow(settings.options)) {
    raw_.struct_size = sizeof raw_;
    raw_.format = str(settings.format);
    raw_.options = options_.data();
    raw_.n_options = options_.size();
  }

  const crossdock_write_settings* get() const noexcept { return &raw_; }

 private:
  std::vector<crossdock_option> options_;
  crossdock_write_settings raw_{};
};

}  // namespace detail

}  // namespace crossdock

#endif /* CROSSDOCK_SETTINGS_HPP */
