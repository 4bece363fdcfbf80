#include "compiler_core/frontend/safetensors.h"
#include "compiler_core/base/file.h"

#include <gtest/gtest.h>

#include <cstring>

namespace kiln {
namespace {

std::string file_of(const std::string& header, const std::string& data) {
  std::string bytes(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

void expect_refused(const std::string& bytes, const std::string& part) {
  const auto tensors = parse_safetensors(bytes);
  ASSERT_FALSE(tensors);
  EXPECT_EQ(tensors.error().code, Code::kInvalidArgument);
  EXPECT_NE(tensors.error().message.find(part), std::string::npos) << tensors.error().message;
}

TEST(Safetensors, what_is_written_is_read_back) {
  const TempDir directory = TempDir::create("kiln_safetensors_test").value();
  Tensor f32(DType::kF32, {2, 3}), i64(DType::kI64, {}), bf16(DType::kBF16, {4}),
      none(DType::kF32, {0, 7});
  for (int64_t i = 0; i < 6; ++i) f32.set(i, 0.5 * static_cast<double>(i));
  i64.set_int(0, INT64_MIN);
  bf16.set(3, 1.5);
  Tensor truth(DType::kBool, {3});
  truth.set_int(1, 1);
  Tensor scales(DType::kF8E8M0, {256});
  for (int64_t i = 0; i < 256; ++i) scales.as<uint8_t>()[i] = static_cast<uint8_t>(i);
  const std::map<std::string, const Tensor*> written = {
      {"a", &f32}, {"b\"\\\n", &i64}, {"c", &bf16}, {"d", &truth}, {"e", &none}, {"f", &scales}};
  ASSERT_TRUE(write_safetensors(directory.path() / "t.safetensors", written));
  const auto read = read_safetensors(directory.path() / "t.safetensors");
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->size(), written.size());
  for (const auto& [name, tensor] : written) {
    ASSERT_TRUE(read->contains(name)) << name;
    const Tensor& got = read->at(name);
    EXPECT_EQ(got.dtype(), tensor->dtype());
    EXPECT_EQ(got.sizes(), tensor->sizes());
    EXPECT_TRUE(std::equal(got.bytes().begin(), got.bytes().end(), tensor->bytes().begin(),
                           tensor->bytes().end()));
  }
}

TEST(Safetensors, metadata_and_padding_are_passed_over) {
  const auto tensors = parse_safetensors(file_of(
      R"({"__metadata__":{"format":"pt"},"x":)" + entry("U8", "[2]", "[0,2]") + "}     ", "ab"));
  ASSERT_TRUE(tensors) << tensors.error().message;
  ASSERT_EQ(tensors->size(), 1u);
  EXPECT_EQ(tensors->at("x").get_int(1), 'b');
}

TEST(Safetensors, an_empty_file_of_no_tensors_is_good) {
  const auto tensors = parse_safetensors(file_of("{}", ""));
  ASSERT_TRUE(tensors) << tensors.error().message;
  EXPECT_TRUE(tensors->empty());
}

TEST(Safetensors, a_missing_file_is_not_found) {
  const auto tensors = read_safetensors("/nowhere/x.safetensors");
  ASSERT_FALSE(tensors);
  EXPECT_EQ(tensors.error().code, Code::kNotFound);
}

TEST(Safetensors, truncated_files_are_refused) {
  const std::string whole = file_of(R"({"x":)" + entry("F32", "[2]", "[0,8]") + "}", "12345678");
  ASSERT_TRUE(parse_safetensors(whole));
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(parse_safetensors(std::string_view(whole).substr(0, size))) << size;
}

TEST(Safetensors, a_header_length_beyond_the_file_is_refused) {
  std::string bytes = file_of("{}", "");
  std::memset(bytes.data(), 0xff, 8);
  expect_refused(bytes, "header");
}

TEST(Safetensors, a_header_that_is_no_object_is_refused) {
  expect_refused(file_of("[]", ""), "header");
  expect_refused(file_of("{", ""), "header");
  expect_refused(file_of(R"({"x":3})", ""), "'x'");
  expect_refused(file_of(std::string(4000, '['), ""), "header");
}

TEST(Safetensors, data_that_is_shared_missing_or_outside_is_refused) {
  const std::string byte = entry("U8", "[2]", "[0,2]");
  expect_refused(file_of(R"({"x":)" + byte + R"(,"y":)" + entry("U8", "[2]", "[1,3]") + "}", "abc"),
                 "overlaps");
  expect_refused(
      file_of(R"({"x":)" + byte + R"(,"y":)" + entry("U8", "[1]", "[3,4]") + "}", "abcd"), "hole");
  expect_refused(file_of(R"({"x":)" + byte + "}", "abc"), "behind the last");
  expect_refused(file_of(R"({"x":)" + entry("U8", "[2]", "[2,0]") + "}", "ab"), "outside");
  expect_refused(file_of(R"({"x":)" + entry("U8", "[9]", "[0,9]") + "}", "ab"), "outside");
  expect_refused(file_of(R"({"x":)" + entry("U8", "[18446744073709551615]", "[0,2]") + "}", "ab"),
                 "shape");
  expect_refused(file_of(R"({"x":)" + entry("U8", "[2]", "[-1,1]") + "}", "ab"), "data_offsets");
}

TEST(Safetensors, sizes_that_do_not_match_or_overflow_are_refused) {
  expect_refused(file_of(R"({"x":)" + entry("F32", "[2]", "[0,4]") + "}", "abcd"), "another size");
  expect_refused(file_of(R"({"x":)" + entry("F32", "[-1]", "[0,4]") + "}", "abcd"), "shape");
  expect_refused(file_of(R"({"x":)" + entry("F32", "[4611686018427387904,4]", "[0,0]") + "}", ""),
                 "overflow");
  expect_refused(file_of(R"({"x":)" + entry("F32", "[1.5]", "[0,4]") + "}", "abcd"), "shape");
}

TEST(Safetensors, a_dtype_that_is_not_covered_is_named) {
  expect_refused(file_of(R"({"x":)" + entry("F8_E4M3FNUZ", "[2]", "[0,2]") + "}", "ab"),
                 "F8_E4M3FNUZ");
  expect_refused(file_of(R"({"x":)" + entry("C64", "[0]", "[0,0]") + "}", ""), "C64");
}

TEST(Safetensors, one_name_twice_is_refused) {
  const std::string nothing = entry("U8", "[0]", "[0,0]");
  expect_refused(file_of(R"({"x":)" + nothing + R"(,"x":)" + nothing + "}", ""), "twice");
}

}  // namespace
}  // namespace kiln
