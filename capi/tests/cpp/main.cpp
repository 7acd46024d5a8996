/*
 * Calls every function of crossdock-host.hpp.
 *
 *     main SAMPLE PLUGIN-FOLDER EMPTY-FOLDER
 */
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <stdexcept>
#include <thread>

#include <crossdock-host.hpp>

using namespace crossdock;

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      std::fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                                 \
    }                                                                               \
  } while (0)

namespace {

constexpr std::uint64_t SAMPLE_ROWS = 27004;
constexpr std::size_t SAMPLE_COLUMNS = 21;

std::string sample, plugins, folder;

/* Calls `f`, which must throw an Error with this code and a message that contains `words`. */
template <class F>
Error expect_error(crossdock_code code, std::string_view words, F f) {
  try {
    f();
  } catch (const Error& error) {
    const bool has_words = std::string_view(error.what()).find(words) != std::string_view::npos;
    if (error.code() == code && has_words) return error;
    std::fprintf(stderr, "expected error %d with '%s', got error %d: %s\n", static_cast<int>(code),
                 std::string(words).c_str(), static_cast<int>(error.code()), error.what());
    std::exit(1);
  }
  std::fprintf(stderr, "expected error %d with '%s', got none\n", static_cast<int>(code), std::string(words).c_str());
  std::exit(1);
}

std::uint64_t count(const Session& session, Batches batches) {
  std::uint64_t rows = 0;
  for (Batch& batch : batches) rows += session.count_rows(batch);
  CHECK(!batches.next()); /* the end is permanent */
  return rows;
}

std::vector<std::byte> content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

void hosts_and_plugins() {
  CHECK(!version().empty());
  auto messages = std::make_shared<std::vector<std::string>>();
  std::ofstream(folder + "/text.so") << "no plugin";
  {
    const Host host({.plugins = {plugins, folder},
                     .flags = CROSSDOCK_HOST_ONLY_GIVEN,
                     .log = [messages](std::int32_t, std::string_view, std::string_view message) {
                       messages->emplace_back(message);
                     },
                     .log_level = CROSSDOCK_LOG_TRACE});
    std::vector<std::string> warnings;
    const std::vector<Candidate> candidates = host.candidates(true, &warnings);
    CHECK(candidates.size() == 3 && warnings.empty());
    for (const Candidate& candidate : candidates) {
      if (candidate.path == folder + "/text.so") {
        CHECK(candidate.status == CROSSDOCK_CANDIDATE_REFUSED && !candidate.reason.empty() && !candidate.message.empty());
        continue;
      }
      CHECK(candidate.status == CROSSDOCK_CANDIDATE_CHOSEN && candidate.reason.empty());
      CHECK(candidate.path.starts_with(plugins) && candidate.name.starts_with("arrow-") && !candidate.formats.empty());
    }
    host.load("arrow-ipc");
    expect_error(CROSSDOCK_INVALID_ARGUMENT, "absent", [&] { host.load("absent"); });
  }
  CHECK(messages->size() == 1 && messages->front().find("text.so") != std::string::npos);
  /* Another thread may release the last instance, and with it `log`. */
  for (int i = 0; messages.use_count() > 1 && i < 3000; i++) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(messages.use_count() == 1);
  const std::string missing = folder + "/missing.so";
  expect_error(CROSSDOCK_IO, missing, [&] { Host({.plugins = {missing}}); });
}

void reading(const Session& session) {
  CHECK(count(session, session.read(sample)) == SAMPLE_ROWS);

  std::uint64_t done = 0;
  Batches batches = session.read(sample, {.progress = [&done](std::uint64_t bytes, std::uint64_t) { done = bytes; },
                                          .columns = {{{"day"}, {"carrier"}}},
                                          .rows = {{{0, 100}, {200, 300}}},
                                          .limit = 150,
                                          .batch_rows = 40,
                                          .filters = {"day >= 1"}});
  const Schema schema = batches.schema();
  CHECK(children(*schema).size() == 2 && children(*schema)[1]->name == std::string_view("carrier"));
  std::uint64_t rows = 0;
  for (Batch& batch : batches) {
    CHECK(columns(batch).size() == 2 && batch->array.array.length <= 40);
    rows += session.count_rows(batch);
  }
  CHECK(rows == 150 && done > 0);
  CHECK(count(session, session.read(sample, {.columns = {{}}})) == SAMPLE_ROWS);
  CHECK(count(session, session.read(sample, {.rows = {{}}})) == 0);

  expect_error(CROSSDOCK_IO, "absent.arrow", [&] { session.read(folder + "/absent.arrow"); });
  expect_error(CROSSDOCK_INVALID_ARGUMENT, "no option", [&] { session.read(sample, {.options = {{"colour", "red"}}}); });
  expect_error(CROSSDOCK_INVALID_ARGUMENT, "URI", [&] { session.read(sample, {.storage_options = {{"key", "1"}}}); });

  std::size_t rows_of_scan = 0;
  Owned<ArrowDeviceArrayStream> scan = session.scan({sample, sample}, {.batch_rows = 5000});
  for (;;) {
    Owned<ArrowDeviceArray> array;
    CHECK(scan->get_next(scan.get(), array.out()) == 0);
    if (!array) break;
    rows_of_scan += static_cast<std::size_t>(array->array.length);
  }
  CHECK(rows_of_scan == 2 * SAMPLE_ROWS);
  Owned<ArrowArrayStream> host_scan = session.scan_to_host({sample}, {.limit = 7});
  Owned<ArrowArray> array;
  CHECK(host_scan->get_next(host_scan.get(), array.out()) == 0 && array->length == 7);
  expect_error(CROSSDOCK_INVALID_ARGUMENT, "progress",
               [&] { session.scan({sample}, {.progress = [](std::uint64_t, std::uint64_t) {}}); });
}

void memory_and_capsules(const Session& session) {
  const std::string uncompressed = folder + "/uncompressed.arrow";
  session.convert(sample, uncompressed, {.write_options = {{"compression", "none"}}});
  auto bytes = std::make_shared<const std::vector<std::byte>>(content(uncompressed));
  std::weak_ptr<const void> watch = bytes;
  Batch first;
  {
    Batches batches = session.read_bytes(*bytes, bytes);
    bytes.reset();
    first = batches.next();
  }
  CHECK(!watch.expired()); /* the batch refers to the bytes */
  first.reset();
  CHECK(watch.expired());
  expect_error(CROSSDOCK_UNSUPPORTED, "", [&] { session.read_bytes(*std::make_shared<std::vector<std::byte>>(9), nullptr); });

  Batches batches = session.read(sample);
  const Schema schema = batches.schema();
  BatchWriter writer = session.write_capsules(*schema, {.format = "arrow-c-device"});
  std::uint64_t rows = 0;
  for (Batch& batch : batches)
    rows += count(session, session.read_capsules(writer.write(std::move(batch)), {.format = "arrow-c-device"}));
  writer.finish();
  CHECK(rows == SAMPLE_ROWS);
}

/* A source that the application implements. */
Owned<crossdock_source> make_source(std::vector<std::byte> bytes) {
  Owned<crossdock_source> source;
  source->bytes = static_cast<std::int64_t>(bytes.size());
  source->name = str("a source of the test");
  source->private_data = new std::vector<std::byte>(std::move(bytes));
  source->read_at = [](crossdock_source* self, std::uint64_t offset, void* to, std::size_t n, std::size_t* n_read,
                       crossdock_error*) noexcept -> crossdock_code {
    const auto& content = *static_cast<const std::vector<std::byte>*>(self->private_data);
    const std::size_t begin = std::min<std::size_t>(offset, content.size());
    *n_read = std::min(n, content.size() - begin);
    std::memcpy(to, content.data() + begin, *n_read);
    return CROSSDOCK_OK;
  };
  source->release = [](crossdock_source* self) noexcept {
    delete static_cast<std::vector<std::byte>*>(self->private_data);
    self->release = nullptr;
  };
  return source;
}

void writing(const Session& session) {
  const Schema schema = make_table_schema({{"id", "l", false}, {"score", "g"}}, {{"origin", "test"}, {"empty", ""}});
  const std::vector<double> scores = {0.5, 0.0, 2.5};
  const std::vector<std::uint8_t> valid = {0b101};
  auto make = [&] {
    return make_batch(3, {{3, {{}, make_buffer(std::vector<std::int64_t>{7, 8, 9})}},
                          {3, {make_buffer(valid), make_buffer(scores)}, 1}});
  };
  std::vector<std::byte> written;
  BatchWriter writer = session.write_to(
      [&](std::span<const std::byte> bytes) { written.insert(written.end(), bytes.begin(), bytes.end()); }, "memory.arrow",
      *schema);
  CHECK(!writer.write(make()));
  writer.write(make());
  writer.finish();

  Batches batches = session.read_source(make_source(written));
  const Schema read = batches.schema();
  Metadata metadata = decode_metadata(read->metadata);
  std::sort(metadata.begin(), metadata.end());
  CHECK(metadata == (Metadata{{"empty", ""}, {"origin", "test"}}));
  CHECK(children(*read)[0]->format == std::string_view("l") && children(*read)[0]->flags == 0);
  CHECK(children(*read)[1]->flags == ARROW_FLAG_NULLABLE);
  const Batch batch = batches.next();
  const auto ids = values<std::int64_t>(*columns(batch)[0]);
  CHECK(std::accumulate(ids.begin(), ids.end(), std::int64_t{0}) == 24);
  const ArrowArray& score = *columns(batch)[1];
  CHECK(is_null(score, 1) && !is_null(score, 0) && !is_null(score, 2) && values<double>(score)[2] == 2.5);
  CHECK(!is_null(*columns(batch)[0], 1));

  const std::string path = folder + "/written.arrow";
  { session.write(path, *schema).write(make()); }
  CHECK(!std::ifstream(path));
  BatchWriter file = session.write(path, *schema, {.options = {{"compression", "lz4"}}});
  file.write(make());
  file.finish();
  CHECK(count(session, session.read(path)) == 3);

  auto fail_with = [&](auto exception) {
    BatchWriter broken = session.write_to([=](std::span<const std::byte>) { throw exception; }, "x.arrow", *schema);
    broken.write(make());
    broken.finish();
  };
  const Error full = expect_error(CROSSDOCK_IO, "the disk is full",
                                  [&] { fail_with(Error(CROSSDOCK_IO, "the disk is full", "more").at_row(3)); });
  CHECK(full.row() == 3 && !full.offset() && full.details().find("more") != std::string::npos);
  expect_error(CROSSDOCK_PANICKED, "out of paper", [&] { fail_with(std::runtime_error("out of paper")); });
  expect_error(CROSSDOCK_PANICKED, "unknown type", [&] { fail_with(5); });
  expect_error(CROSSDOCK_OUT_OF_MEMORY, "memory", [&] { fail_with(std::bad_alloc()); });
}

void plans_and_conversions(const Session& session) {
  const Schema schema = session.read(sample).schema();
  const std::vector<ColumnVerdict> plan = session.plan(*schema, CPU, {.format = "arrow-c-device"});
  CHECK(plan.size() == SAMPLE_COLUMNS && plan[0].name == "year" && plan[0].verdict == CROSSDOCK_ZERO_COPY);
  std::uint64_t done = 0;
  const Report report = session.convert(sample, folder + "/converted.arrow",
                                        {.via = {"arrow-c-device"},
                                         .columns = {"year", "day"},
                                         .write_options = {{"compression", "none"}},
                                         .progress = [&done](std::uint64_t bytes, std::uint64_t) { done = bytes; }});
  CHECK(report.rows == SAMPLE_ROWS && report.bytes > 0 && done > 0);
  CHECK(report.stages.size() == 3 && report.stages[1].kind == "via" && report.stages[1].plugin == "arrow-c-device");
}

void parts(const Session& session) {
  Owned<crossdock_parts> taken = session.to_parts(session.scan({sample}));
  CHECK(taken && taken->n_buffers > 0);
  const auto owner = std::make_shared<int>(0);
  std::vector<ReceivedBuffer> buffers;
  for (std::size_t i = 0; i < taken->n_buffers; i++) {
    const crossdock_part* part = CROSSDOCK_AT(taken->buffers, i);
    buffers.push_back({{static_cast<const std::byte*>(part->data), part->bytes}, owner});
  }
  const std::span header(static_cast<const std::byte*>(taken->header), taken->header_bytes);
  {
    Owned<ArrowDeviceArrayStream> stream = session.from_parts(header, buffers);
    Owned<ArrowDeviceArray> array;
    CHECK(stream->get_next(stream.get(), array.out()) == 0 && array->array.length > 0);
    CHECK(owner.use_count() > static_cast<long>(buffers.size()) + 1);
  }
  expect_error(CROSSDOCK_BAD_DATA, "", [&] { session.from_parts(header.first(8), buffers); });
  CHECK(owner.use_count() == static_cast<long>(buffers.size()) + 1); /* all have been released */
}

void owners() {
  int released = 0;
  auto make = [&released] {
    Owned<crossdock_sink> sink;
    sink->private_data = &released;
    sink->release = [](crossdock_sink* self) noexcept {
      ++*static_cast<int*>(self->private_data);
      self->release = nullptr;
    };
    return sink;
  };
  {
    Owned<crossdock_sink> first = make(), second = make();
    CHECK(first && second);
    first = std::move(second);
    CHECK(released == 1 && !second);
    crossdock_sink raw{};
    raw.struct_size = sizeof raw;
    first.move_to(&raw);
    CHECK(!first && raw.release && raw.struct_size == sizeof raw);
    raw.struct_size = offsetof(crossdock_sink, private_data); /* an older module with a shorter struct */
    Owned<crossdock_sink> taken = Owned<crossdock_sink>::take(&raw);
    CHECK(!raw.release && taken && taken->private_data == nullptr);
    CHECK(taken->struct_size == offsetof(crossdock_sink, private_data));
    taken->private_data = &released;
    taken.reset();
    CHECK(released == 2 && !taken && taken->struct_size == sizeof(crossdock_sink));
    first = make();
  }
  CHECK(released == 3);
}

void cancellation(const Host& host) {
  const Session session(host, {.validate = CROSSDOCK_VALIDATE_LAYOUT, .byte_budget = 1 << 20});
  Batches batches = session.read(sample);
  session.cancel();
  expect_error(CROSSDOCK_CANCELLED, "", [&] { batches.next(); });
  CHECK(!batches.next());
  expect_error(CROSSDOCK_DEVICE, "cuda", [&] { Session(host, {.device = cuda(4096)}); });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  sample = argv[1], plugins = argv[2], folder = argv[3];
  owners();
  hosts_and_plugins();
  const Host host({.plugins = {plugins}, .flags = CROSSDOCK_HOST_ONLY_GIVEN});
  {
    const Session session(host);
    reading(session);
    memory_and_capsules(session);
    writing(session);
    plans_and_conversions(session);
    parts(session);
  }
  cancellation(host);
  for (const Leak& leak : host.settle())
    std::fprintf(stderr, "leak of %s: %llu bytes\n", leak.account.c_str(), static_cast<unsigned long long>(leak.bytes));
  CHECK(host.settle().empty() && host.ledger().live_bytes == 0);
  std::puts("passed");
}
