/* A plugin whose functions throw what the option `throw` names. */
#include <stdexcept>

#include "crossdock-plugin.hpp"

namespace {

void throw_if(std::optional<std::string_view> name) {
  if (name == "error") throw crossdock::Error(CROSSDOCK_BAD_DATA, "a bad byte", "more about it").at_offset(7);
  if (name == "standard") throw std::runtime_error("a broken invariant");
  if (name == "memory") throw std::bad_alloc();
  if (name == "other") throw 5;
}

constexpr crossdock_option_info OPTIONS[] = {
    crossdock::make_option("throw", "what to throw"),
    crossdock::make_option("in", "the function that throws: open, schema, next; begin, write, finish"),
};
constexpr crossdock_format FORMATS[] = {
    crossdock::make_format({.name = "throwing", .description = "no data", .options = OPTIONS}),
};

/* Options are valid only until `open` or `begin` returns. */
struct Throw {
  explicit Throw(const crossdock::Options& options)
      : name(options.get("throw").value_or("")), in(options.get("in").value_or("")) {}
  void now(std::string_view function) const {
    if (in == function) throw_if(name);
  }
  std::string name, in;
};

class Reader : public crossdock::Reader {
 public:
  explicit Reader(Throw what) : what_(std::move(what)) {}
  crossdock::Schema schema() override { return what_.now("schema"), crossdock::make_table_schema({{"a", "l"}}); }
  crossdock::Batch next(const crossdock::Call&) override { return what_.now("next"), crossdock::Batch(); }

 private:
  Throw what_;
};

class Writer : public crossdock::Writer {
 public:
  explicit Writer(Throw what) : what_(std::move(what)) {}
  void write(const crossdock::Call&, crossdock::Batch) override { what_.now("write"); }
  void finish(const crossdock::Call&) override { what_.now("finish"); }

 private:
  Throw what_;
};

class Throwing : public crossdock::Plugin {
 public:
  using Plugin::Plugin;
  std::span<const crossdock_format> read_formats() const override { return FORMATS; }
  std::span<const crossdock_format> write_formats() const override { return FORMATS; }
  std::unique_ptr<crossdock::Reader> open(const crossdock::Call&, crossdock::ReadRequest request) override {
    Throw what(request.options);
    what.now("open");
    return std::make_unique<Reader>(std::move(what));
  }
  std::unique_ptr<crossdock::Writer> begin(const crossdock::Call&, std::string_view, const ArrowSchema&,
                                           const crossdock::Options& options, crossdock::Sink) override {
    Throw what(options);
    what.now("begin");
    return std::make_unique<Writer>(std::move(what));
  }
};

}  // namespace

CROSSDOCK_PLUGIN(Throwing, .name = "throwing", .version = "0.1.0", .api_range = CROSSDOCK_API_RANGE,
                 .licence = "Apache-2.0", .toolchain = CROSSDOCK_CXX_TOOLCHAIN, .panic = "unwind",
                 .interfaces = CROSSDOCK_IMPORTER_ID " " CROSSDOCK_EXPORTER_ID, .formats = "throwing",
                 .description = "throws exceptions", .required = CROSSDOCK_HOST_MEMORY_ID);
