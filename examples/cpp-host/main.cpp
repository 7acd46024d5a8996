/*
 * Copies the rows of a table that fulfil comparisons to a file of any format that a plugin writes.
 *
 *     cpp-host flights.arrow late.csv "dep_delay > 60" "carrier == UA"
 */
#include <cinttypes>
#include <cstdio>

#include <crossdock-host.hpp>

namespace {

void run(const std::string& in, const std::string& out, const std::vector<std::string>& comparisons) {
  crossdock::Host host({.log = [](std::int32_t, std::string_view plugin, std::string_view message) {
    std::fprintf(stderr, "%.*s: %.*s\n", static_cast<int>(plugin.size()), plugin.data(),
                 static_cast<int>(message.size()), message.data());
  }});
  {
    crossdock::Session session(host);
    crossdock::Batches batches = session.read(in, {.filters = comparisons});
    const crossdock::Schema schema = batches.schema();
    crossdock::BatchWriter writer = session.write(out, *schema);
    std::uint64_t rows = 0;
    for (crossdock::Batch& batch : batches) {
      rows += session.count_rows(batch);
      writer.write(std::move(batch));
    }
    writer.finish();
    std::printf("%" PRIu64 " rows of %zu columns\n", rows, crossdock::children(*schema).size());
  }
  const crossdock_ledger ledger = host.ledger();
  std::printf("%" PRIu64 " bytes copied, %zu leaks\n", ledger.copied_h2h, host.settle().size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s IN OUT [COMPARISON]...\n", argv[0]);
    return 2;
  }
  try {
    run(argv[1], argv[2], {argv + 3, argv + argc});
    return 0;
  } catch (const crossdock::Error& error) {
    std::fprintf(stderr, "error %d: %s\n", static_cast<int>(error.code()), error.what());
    if (!error.details().empty()) std::fprintf(stderr, "%s\n", error.details().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
  }
  return 1;
}
