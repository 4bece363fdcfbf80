#include "compiler_core/program/library_call.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "compiler_core/program/json_fields.h"

namespace kiln {
namespace {

constexpr size_t kAlgorithmDigits = 128;  // cublasLtMatmulAlgo_t has 64 bytes
constexpr size_t kMaxVersionLength = 32;

tl::unexpected<Error> damaged_call(std::string_view why) {
  return fail(Code::kCorruption, fmt::format("a library call is damaged: {}", why));
}

Json matrix_to_json(const LibraryCall::Matrix& matrix) {
  Json json = {{"buffer", matrix.buffer},
               {"dtype", to_string(matrix.dtype)},
               {"transposed", matrix.transposed ? 1 : 0},
               {"ld", dim_to_json(matrix.ld)},
               {"batch_stride", dim_to_json(matrix.batch_stride)}};
  if (!matrix.offset.is(0)) json["offset"] = dim_to_json(matrix.offset);
  return json;
}

Result<int> buffer_field(const Json& json, const char* name, size_t buffers) {
  TRY(const int64_t index, int_field(json, name, 0, static_cast<int64_t>(buffers) - 1));
  return static_cast<int>(index);
}

Result<LibraryCall::Matrix> matrix_field(const Json& object, const char* name, size_t buffers) {
  LibraryCall::Matrix matrix;
  TRY(const Json* json, object_field(object, name));
  TRY(matrix.buffer, buffer_field(*json, "buffer", buffers));
  TRY(const std::string dtype, string_field(*json, "dtype"));
  const Result<DType> parsed = parse_dtype(dtype);
  if (!parsed) return damaged_call("a dtype is unknown");
  matrix.dtype = *parsed;
  TRY(const int64_t transposed, int_field(*json, "transposed", 0, 1));
  matrix.transposed = transposed == 1;
  TRY(matrix.ld, dim_field(*json, "ld"));
  TRY(matrix.batch_stride, dim_field(*json, "batch_stride"));
  if (json->contains("offset")) {
    TRY(matrix.offset, dim_field(*json, "offset"));
  }
  return matrix;
}

Result<std::string> known_word(const Json& json, const char* name,
                               std::span<const char* const> known) {
  TRY(std::string word, string_field(json, name));
  if (std::ranges::find(known, word) != known.end()) return word;
  return damaged_call(fmt::format("'{}' is none that there is", name));
}

bool is_hexadecimal(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Elements from the start of a matrix's buffer to the end of its last row.
Result<int64_t> extent(const LibraryCall::Matrix& matrix, int64_t rows, int64_t columns,
                       int64_t batch, std::span<const int64_t> symbols) {
  if (matrix.transposed) std::swap(rows, columns);
  TRY(const int64_t ld, matrix.ld.evaluate(symbols));
  TRY(const int64_t stride, matrix.batch_stride.evaluate(symbols));
  TRY(const int64_t offset, matrix.offset.evaluate(symbols));
  int64_t in_rows = 0, in_batches = 0, total = 0;
  if (ld < columns || stride < 0 || offset < 0 || __builtin_mul_overflow(rows - 1, ld, &in_rows) ||
      __builtin_mul_overflow(batch - 1, stride, &in_batches) ||
      __builtin_add_overflow(in_rows, in_batches, &total) ||
      __builtin_add_overflow(total, columns, &total) ||
      __builtin_add_overflow(total, offset, &total))
    return fail(Code::kInvalidArgument, "a library call has an operand of impossible strides");
  return total;
}

}  // namespace

Status LibraryCall::check(std::span<const int64_t> symbols,
                          std::span<const int64_t> elements) const {
  TRY(const int64_t rows, m.evaluate(symbols));
  TRY(const int64_t columns, n.evaluate(symbols));
  TRY(const int64_t depth, k.evaluate(symbols));
  TRY(const int64_t count, batch.evaluate(symbols));
  if (rows < 1 || columns < 1 || depth < 1 || count < 1)
    return fail(Code::kInvalidArgument, "a library call has a size that is not positive");
  const auto fits = [&](int buffer, int64_t needed) {
    return needed <= elements[static_cast<size_t>(buffer)];
  };
  TRY(const int64_t of_a, extent(a, rows, depth, count, symbols));
  TRY(const int64_t of_b, extent(b, depth, columns, count, symbols));
  TRY(const int64_t of_d, extent(d, rows, columns, count, symbols));
  if (fits(a.buffer, of_a) && fits(b.buffer, of_b) && fits(d.buffer, of_d) &&
      (c < 0 || fits(c, of_d)) && (bias < 0 || fits(bias, columns)))
    return {};
  return fail(Code::kInvalidArgument, "a library call reaches beyond a buffer");
}

Json library_call_to_json(const LibraryCall& call) {
  Json json = {{"library", call.library},          {"version", call.version},
               {"function", call.function},        {"m", dim_to_json(call.m)},
               {"n", dim_to_json(call.n)},         {"k", dim_to_json(call.k)},
               {"batch", dim_to_json(call.batch)}, {"a", matrix_to_json(call.a)},
               {"b", matrix_to_json(call.b)},      {"d", matrix_to_json(call.d)},
               {"compute", call.compute},          {"epilogue", call.epilogue}};
  if (call.c >= 0) json["c"] = call.c;
  if (call.bias >= 0) json["bias"] = call.bias;
  if (call.algorithm.empty())
    json["rank"] = call.rank;
  else
    json["algorithm"] = call.algorithm;
  return json;
}

Result<LibraryCall> library_call_from_json(const Json& json, size_t buffers) {
  static constexpr const char* kLibraries[] = {"cublaslt"};
  static constexpr const char* kFunctions[] = {"matmul"};
  static constexpr const char* kComputes[] = {"f32", "tf32", "f64"};
  LibraryCall call;
  TRY(call.library, known_word(json, "library", kLibraries));
  TRY(call.version, string_field(json, "version"));
  if (call.version.size() > kMaxVersionLength) return damaged_call("its version is no version");
  TRY(call.function, known_word(json, "function", kFunctions));
  TRY(call.m, dim_field(json, "m"));
  TRY(call.n, dim_field(json, "n"));
  TRY(call.k, dim_field(json, "k"));
  TRY(call.batch, dim_field(json, "batch"));
  TRY(call.a, matrix_field(json, "a", buffers));
  TRY(call.b, matrix_field(json, "b", buffers));
  TRY(call.d, matrix_field(json, "d", buffers));
  if (call.d.transposed) return damaged_call("its result is transposed");
  TRY(call.compute, known_word(json, "compute", kComputes));
  TRY(call.epilogue, known_word(json, "epilogue", kEpilogues));
  if (json.contains("c")) {
    TRY(call.c, buffer_field(json, "c", buffers));
  }
  if (call.has_bias()) {
    TRY(call.bias, buffer_field(json, "bias", buffers));
  }
  if (!json.contains("algorithm")) {
    TRY(const int64_t rank, int_field(json, "rank", 0, kLibraryRanks - 1));
    call.rank = static_cast<int>(rank);
    return call;
  }
  TRY(call.algorithm, string_field(json, "algorithm"));
  if (call.algorithm.size() != kAlgorithmDigits || !is_hexadecimal(call.algorithm))
    return damaged_call("its algorithm is not 64 bytes in hexadecimal");
  return call;
}

std::vector<Dim> sizes_of(const LibraryCall& call) {
  std::vector<Dim> sizes = {call.m, call.n, call.k, call.batch};
  for (const LibraryCall::Matrix* matrix : {&call.a, &call.b, &call.d})
    sizes.insert(sizes.end(), {matrix->ld, matrix->batch_stride, matrix->offset});
  return sizes;
}

}  // namespace kiln
