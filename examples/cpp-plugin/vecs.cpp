/* The plugin `vecs`: files with one vector in each row, which benchmarks of nearest-neighbour
 * search use. A row is the number of its elements (int32, little-endian) and the elements: float32
 * in .fvecs, int32 in .ivecs and uint8 in .bvecs. */
#include <algorithm>
#include <bit>
#include <charconv>

#include "crossdock-plugin.hpp"

using crossdock::Error;

static_assert(std::endian::native == std::endian::little, "the files are little-endian");

namespace {

using Dimension = std::int32_t;
constexpr Dimension MAX_DIMENSION = 1 << 24;
constexpr std::size_t BATCH_BYTES = 16 << 20;

struct Elements {
  std::string_view format; /* Arrow's */
  std::size_t bytes;
  std::string_view name;
};

constexpr crossdock_str FVECS[] = {crossdock::str(".fvecs")};
constexpr crossdock_str IVECS[] = {crossdock::str(".ivecs")};
constexpr crossdock_str BVECS[] = {crossdock::str(".bvecs")};
constexpr crossdock_option_info READ_OPTIONS[] = {
    crossdock::make_option("name", "name of the column [default: vector]"),
};

constexpr crossdock_format make_format(std::string_view name, std::string_view description,
                                       std::span<const crossdock_str> extensions,
                                       std::span<const crossdock_option_info> options) {
  return crossdock::make_format({.name = name, .description = description, .extensions = extensions, .options = options});
}

constexpr crossdock_format READ_FORMATS[] = {
    make_format("fvecs", "vectors of float32", FVECS, READ_OPTIONS),
    make_format("ivecs", "vectors of int32", IVECS, READ_OPTIONS),
    make_format("bvecs", "vectors of uint8", BVECS, READ_OPTIONS),
};
constexpr crossdock_format WRITE_FORMATS[] = {
    make_format("fvecs", "one column of vectors of float32", FVECS, {}),
    make_format("ivecs", "one column of vectors of int32", IVECS, {}),
    make_format("bvecs", "one column of vectors of uint8", BVECS, {}),
};

Elements elements_of(std::string_view format) {
  if (format == "fvecs") return {"f", 4, "float32"};
  if (format == "ivecs") return {"i", 4, "int32"};
  return {"C", 1, "uint8"};
}

/* The dimension in the type "+w:DIMENSION" of a list; 0 for other types. */
Dimension dimension_of(const ArrowSchema& column) {
  const std::string_view format = column.format;
  Dimension dimension = 0;
  if (!format.starts_with("+w:")) return 0;
  const char* end = format.data() + format.size();
  const auto result = std::from_chars(format.data() + 3, end, dimension);
  return result.ec == std::errc() && result.ptr == end ? dimension : 0;
}

/* Each block of bytes is read from the elements of its first row up to the dimension of the row
 * that follows it, so that a pipe can be read in order. */
class VecsReader : public crossdock::Reader {
 public:
  VecsReader(const crossdock::PluginHost& host, crossdock::ReadRequest request)
      : host_(host), source_(std::move(request.sources.front())), elements_(elements_of(request.format)) {
    if (request.schema && request.schema->n_children == 1 && request.schema->children[0]->name)
      name_ = request.schema->children[0]->name;
    if (const auto name = request.options.get("name")) name_ = *name;
    const std::size_t n_read = source_.read(0, std::as_writable_bytes(std::span(&dimension_, 1)));
    is_at_end_ = n_read == 0;
    if (is_at_end_ && request.schema && request.schema->n_children == 1)
      dimension_ = dimension_of(*request.schema->children[0]);
    if (is_at_end_ && dimension_ == 0)
      throw Error(CROSSDOCK_BAD_DATA, "the file is empty, so its dimension is not known: pass a schema");
    if (!is_at_end_ && n_read < sizeof dimension_)
      throw bad_row("is not complete: the input ends at byte " + std::to_string(n_read));
    if (dimension_ < 1 || dimension_ > MAX_DIMENSION)
      throw bad_row("has the dimension " + std::to_string(dimension_) + ", expected 1 to " + std::to_string(MAX_DIMENSION));
    row_bytes_ = sizeof dimension_ + static_cast<std::size_t>(dimension_) * elements_.bytes;
    const std::size_t batch_rows = request.raw.batch_rows ? request.raw.batch_rows : SIZE_MAX;
    batch_rows_ = std::clamp<std::size_t>(BATCH_BYTES / row_bytes_, 1, batch_rows);
    if (const auto size = source_.size()) {
      if (*size % row_bytes_ != 0)
        throw Error(CROSSDOCK_BAD_DATA, "the size is " + std::to_string(*size) +
                                            " bytes, expected a multiple of the " + std::to_string(row_bytes_) +
                                            " bytes of the first row");
      n_rows_ = *size / row_bytes_;
      batch_rows_ = std::clamp<std::size_t>(*n_rows_, 1, batch_rows_);
    }
  }

  crossdock::Schema schema() override {
    const std::string format = "+w:" + std::to_string(dimension_);
    return crossdock::make_table_schema({{name_, format, false, {{"item", std::string(elements_.format), false}}}});
  }

  std::optional<std::uint64_t> n_rows() const override { return n_rows_; }

  crossdock::Batch next(const crossdock::Call& call) override {
    if (is_at_end_) return {};
    const auto block = host_.allocate<std::byte>(batch_rows_ * row_bytes_);
    const std::size_t n_read = source_.read(offset_, block.elements);
    is_at_end_ = n_read < block.elements.size();
    if (is_at_end_ && (n_read + sizeof dimension_) % row_bytes_ != 0) {
      row_ += n_read / row_bytes_;
      throw bad_row("is not complete: the input ends at byte " + std::to_string(offset_ + n_read));
    }
    const std::size_t n_rows = (n_read + sizeof dimension_) / row_bytes_;
    const std::size_t vector_bytes = row_bytes_ - sizeof dimension_;
    const auto vectors = host_.allocate<std::byte>(n_rows * vector_bytes);
    for (std::size_t i = 0; i < n_rows; i++) {
      const std::byte* row = block.elements.data() + i * row_bytes_;
      std::copy_n(row, vector_bytes, vectors.elements.data() + i * vector_bytes);
      row_++;
      if (!is_at_end_ || i + 1 < n_rows) check_dimension(row + vector_bytes);
    }
    offset_ += n_read;
    call.progress(offset_, source_.size().value_or(0));
    const auto length = static_cast<std::int64_t>(n_rows);
    const crossdock::Buffer no_nulls;
    const crossdock::ArrayParts items{length * dimension_, {no_nulls, vectors.buffer}};
    return crossdock::make_batch(length, {{length, {no_nulls}, 0, {items}}});
  }

 private:
  void check_dimension(const std::byte* at) const {
    Dimension dimension;
    std::memcpy(&dimension, at, sizeof dimension);
    if (dimension == dimension_) return;
    throw bad_row("has the dimension " + std::to_string(dimension) + ", expected " + std::to_string(dimension_) +
                  " as in the first row");
  }

  Error bad_row(const std::string& problem) const {
    Error error(CROSSDOCK_BAD_DATA, "row " + std::to_string(row_) + " " + problem);
    return error.at_row(row_);
  }

  const crossdock::PluginHost& host_;
  crossdock::Source source_;
  Elements elements_;
  std::string name_ = "vector";
  Dimension dimension_ = 0;
  std::size_t row_bytes_ = 0, batch_rows_ = 0;
  std::optional<std::uint64_t> n_rows_;
  std::uint64_t offset_ = sizeof(Dimension), row_ = 0;
  bool is_at_end_ = false;
};

class VecsWriter : public crossdock::Writer {
 public:
  VecsWriter(Elements elements, Dimension dimension, crossdock::Sink sink)
      : vector_bytes_(static_cast<std::size_t>(dimension) * elements.bytes), dimension_(dimension), sink_(std::move(sink)) {}

  void write(const crossdock::Call&, crossdock::Batch batch) override {
    const ArrowArray& lists = *crossdock::columns(batch).front();
    const ArrowArray& items = *lists.children[0];
    const auto n_rows = static_cast<std::size_t>(lists.length), dimension = static_cast<std::size_t>(dimension_);
    const std::size_t first = static_cast<std::size_t>(lists.offset) * dimension;
    const std::size_t width = vector_bytes_ / dimension;
    const auto* bytes = static_cast<const std::byte*>(items.buffers[1]);
    std::vector<std::byte> rows(n_rows * (sizeof dimension_ + vector_bytes_));
    std::byte* to = rows.data();
    for (std::size_t i = 0; i < n_rows; i++, row_++) {
      const std::size_t begin = first + i * dimension;
      if (crossdock::is_null(lists, i)) throw null_at("the vector");
      for (std::size_t j = 0; items.null_count != 0 && j < dimension; j++)
        if (crossdock::is_null(items, begin + j)) throw null_at("an element");
      std::memcpy(to, &dimension_, sizeof dimension_);
      std::memcpy(to + sizeof dimension_, bytes + (begin + static_cast<std::size_t>(items.offset)) * width, vector_bytes_);
      to += sizeof dimension_ + vector_bytes_;
    }
    sink_.write(rows);
  }

  void finish(const crossdock::Call&) override {}

 private:
  Error null_at(const char* what) const {
    Error error(CROSSDOCK_UNSUPPORTED, std::string(what) + " in row " + std::to_string(row_) +
                                           " is null, which the format cannot store: fill nulls first");
    return error.at_row(row_);
  }

  std::size_t vector_bytes_;
  Dimension dimension_;
  crossdock::Sink sink_;
  std::uint64_t row_ = 0;
};

class Vecs : public crossdock::Plugin {
 public:
  using Plugin::Plugin;

  std::span<const crossdock_format> read_formats() const override { return READ_FORMATS; }
  std::span<const crossdock_format> write_formats() const override { return WRITE_FORMATS; }

  std::unique_ptr<crossdock::Reader> open(const crossdock::Call&, crossdock::ReadRequest request) override {
    return std::make_unique<VecsReader>(host(), std::move(request));
  }

  crossdock::ColumnPlan plan(std::string_view format, const ArrowSchema& schema, std::size_t i,
                             const crossdock::Options&) const override {
    const ArrowSchema& column = *schema.children[i];
    const Elements elements = elements_of(format);
    const Dimension dimension = dimension_of(column);
    if (schema.n_children != 1)
      return {CROSSDOCK_CANNOT, "the format stores one column, but the table has " + std::to_string(schema.n_children) +
                                    ": choose one column"};
    if (dimension < 1 || dimension > MAX_DIMENSION || column.children[0]->format != elements.format ||
        column.children[0]->dictionary)
      return {CROSSDOCK_CANNOT, "the format stores lists of 1 to " + std::to_string(MAX_DIMENSION) + " values of " +
                                    std::string(elements.name) + ", all of the same length: cast the column"};
    return {CROSSDOCK_CONVERTED, "stored behind its dimension; the name of the column is not stored"};
  }

  std::unique_ptr<crossdock::Writer> begin(const crossdock::Call&, std::string_view format, const ArrowSchema& schema,
                                           const crossdock::Options&, crossdock::Sink sink) override {
    if (schema.n_children != 1) throw Error(CROSSDOCK_UNSUPPORTED, "the format stores one column, but the table has none");
    return std::make_unique<VecsWriter>(elements_of(format), dimension_of(*schema.children[0]), std::move(sink));
  }
};

}  // namespace

CROSSDOCK_PLUGIN(Vecs, .name = "vecs", .version = "0.1.0", .api_range = CROSSDOCK_API_RANGE, .licence = "Apache-2.0",
                 .toolchain = CROSSDOCK_CXX_TOOLCHAIN, .panic = "unwind",
                 .interfaces = CROSSDOCK_IMPORTER_ID " " CROSSDOCK_EXPORTER_ID, .formats = "fvecs ivecs bvecs",
                 .description = "vectors in .fvecs, .ivecs and .bvecs files (read and write)",
                 .required = CROSSDOCK_HOST_MEMORY_ID);
