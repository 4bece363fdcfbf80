// Files that are no archives, damaged archives, and where parameters come from.
#include "compiler_core/frontend/pt2_archive.h"

#include <cstring>
#include <random>

#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/ir/text.h"
#include "tests/compiler_core/frontend/model_text.h"

namespace kiln {
namespace {

using namespace kiln::testing;  // NOLINT: the vocabulary of these tests

const Path kGraphFiles = KILN_GRAPHS_DIR;

class Archive : public ::testing::Test {
 protected:
  Path file(const std::string& name = "m.pt2") const { return directory_.path() / name; }

  void write(const std::map<std::string, std::string>& entries) { write_zip(file(), entries); }
  void write_bytes(const std::string& bytes) { ASSERT_TRUE(write_file(file(), bytes)); }

  void expect_refused(Code code, const std::vector<std::string>& parts) const {
    const auto program = read_graph_file(file());
    ASSERT_FALSE(program);
    EXPECT_EQ(program.error().code, code) << program.error().message;
    for (const std::string& part : parts)
      EXPECT_NE(program.error().message.find(part), std::string::npos)
          << "'" << part << "' in: " << program.error().message;
  }

  // y = w, of f32[2,2], whose bytes are `payload` as described by `config`.
  void write_parameter(const std::string& config, const std::string& payload,
                       const std::vector<int64_t>& graph_strides = {}) {
    ModelText model;
    model.parameter("w", kFloat, {2, 2}, graph_strides)
        .node("aten.alias.default", {tensor("self", "p_w")}, "y", kFloat, {2, 2})
        .output("y");
    auto entries = archive_entries(model.json());
    entries["m/data/weights/model_weights_config.json"] = R"({"config":{"w":)" + config + "}}";
    entries["m/data/weights/weight_0"] = payload;
    write(entries);
  }
  static std::string config(const std::string& strides, const std::string& offset,
                            const std::string& pickle = "false", int code = kFloat,
                            const std::string& sizes = R"([{"as_int":2},{"as_int":2}])") {
    return R"({"path_name":"weight_0","is_param":true,"use_pickle":)" + pickle +
           R"(,"tensor_meta":{"dtype":)" + std::to_string(code) + R"(,"sizes":)" + sizes +
           R"(,"strides":)" + strides + R"(,"storage_offset":{"as_int":)" + offset +
           R"(},"layout":7}})";
  }
  static std::string floats(const std::vector<float>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
  }

  // Rewrites the uncompressed size of `entry` in the zip's central directory.
  void claim_size(const std::string& entry, uint32_t size) {
    constexpr size_t kSizeAt = 24, kNameAt = 46;
    std::string bytes = read_file(file()).value();
    int changed = 0;
    for (size_t at = 0; (at = bytes.find("PK\1\2", at)) != std::string::npos; at += 4)
      if (bytes.compare(at + kNameAt, entry.size(), entry) == 0) {
        std::memcpy(bytes.data() + at + kSizeAt, &size, sizeof size);
        ++changed;
      }
    ASSERT_EQ(changed, 1);
    write_bytes(bytes);
  }

  static std::string relu() {
    ModelText model;
    model.input("x", kFloat, {2})
        .node("aten.relu.default", {tensor("self", "x")}, "y", kFloat, {2})
        .output("y");
    return model.json();
  }

 private:
  TempDir directory_ = TempDir::create("kiln_archive_test").value();
};

const std::string kRowMajor = R"([{"as_int":2},{"as_int":1}])";
const std::string kColumnMajor = R"([{"as_int":1},{"as_int":2}])";

TEST_F(Archive, one_that_is_whole_is_read) {
  write(archive_entries(relu()));
  EXPECT_TRUE(read_graph_file(file())) << read_graph_file(file()).error().message;
}

TEST_F(Archive, a_missing_file) {
  expect_refused(Code::kNotFound, {"m.pt2"});
}

TEST_F(Archive, a_directory) {
  std::filesystem::create_directory(file());
  expect_refused(Code::kInvalidArgument, {"m.pt2", "directory"});
}

TEST_F(Archive, an_empty_file) {
  write_bytes("");
  expect_refused(Code::kInvalidArgument, {"m.pt2", "empty"});
}

TEST_F(Archive, a_file_that_is_no_zip) {
  write_bytes("import torch\nprint('not an archive')\n");
  expect_refused(Code::kInvalidArgument, {"m.pt2", "not a zip"});
}

TEST_F(Archive, one_truncated_anywhere) {
  const std::string whole = read_file(kGraphFiles / "small" / "mlp_relu.pt2").value();
  for (const size_t size : {4ul, 30ul, 1000ul, whole.size() / 2, whole.size() - 1}) {
    write_bytes(whole.substr(0, size));
    expect_refused(Code::kInvalidArgument, {"truncated or damaged"});
  }
}

TEST_F(Archive, a_zip_of_something_else) {
  write({{"word/document.xml", "<xml/>"}});
  expect_refused(Code::kInvalidArgument, {"models/model.json", "torch.export.save"});
}

TEST_F(Archive, one_from_a_big_endian_machine) {
  auto entries = archive_entries(relu());
  entries["m/byteorder"] = "big";
  write(entries);
  expect_refused(Code::kInvalidArgument, {"byte order 'big'"});
}

TEST_F(Archive, a_damaged_entry_fails_its_checksum) {
  const std::string whole = read_file(kGraphFiles / "small" / "mlp_relu.pt2").value();
  const size_t weight = whole.find("data/weights/weight_0") + 21;
  std::string damaged = whole;
  damaged[weight + 100] = static_cast<char>(damaged[weight + 100] ^ 1);
  write_bytes(damaged);
  const auto program = read_graph_file(file());
  ASSERT_TRUE(program) << program.error().message;
  const auto payload = read_payload(file(), program->inputs[0]);
  ASSERT_FALSE(payload);
  EXPECT_EQ(payload.error().code, Code::kInvalidArgument);
  EXPECT_NE(payload.error().message.find("checksum"), std::string::npos) << payload.error().message;
}

TEST_F(Archive, an_entry_that_claims_more_than_its_bytes_can_unpack_to) {
  write(archive_entries(relu()));
  claim_size("m/models/model.json", 0x7ffffff0);
  expect_refused(Code::kInvalidArgument, {"models/model.json", "can hold"});
}

TEST_F(Archive, an_entry_larger_than_any_model) {
  std::string noise(size_t{400} << 10, ' ');
  std::mt19937 random(1);
  for (char& c : noise) c = static_cast<char>(random());
  write(archive_entries(noise));
  claim_size("m/models/model.json", 300 << 20);
  expect_refused(Code::kInvalidArgument, {"models/model.json", "more than the"});
}

TEST_F(Archive, a_parameter_is_read_in_the_layout_that_the_graph_expects) {
  const std::vector<double> logical = {0, 1, 2, 3};
  write_parameter(config(kRowMajor, "0"), floats({0, 1, 2, 3}));
  auto program = read_exported_program(file());
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_EQ(values_of(read_payload(file(), program->inputs[0]).value()), logical);

  // Stored transposed, as a part of a larger storage.
  write_parameter(config(kColumnMajor, "1"), floats({9, 0, 2, 1, 3, 9}));
  program = read_exported_program(file());
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_EQ(values_of(read_payload(file(), program->inputs[0]).value()), logical);

  // The graph itself was exported with a transposed parameter: its input is the flat storage.
  write_parameter(config(kColumnMajor, "1"), floats({9, 0, 2, 1, 3, 9}), {1, 2});
  program = read_exported_program(file());
  ASSERT_TRUE(program) << program.error().message;
  const Tensor flat = read_payload(file(), program->inputs[0]).value();
  EXPECT_EQ(values_of(flat), (std::vector<double>{0, 2, 1, 3}));
  const Tensor* inputs[] = {&flat};
  EXPECT_EQ(values_of(interpret(program->graph, inputs).value()[0]), logical);
}

TEST_F(Archive, a_pickled_parameter) {
  write_parameter(config(kRowMajor, "0", "true"), "anything");
  expect_refused(Code::kUnsupported, {"'w'", "pickled"});
}

TEST_F(Archive, a_parameter_of_another_type_than_the_graph_says) {
  write_parameter(config(kRowMajor, "0", "false", kDouble), floats({0, 1, 2, 3, 4, 5, 6, 7}));
  expect_refused(Code::kInvalidArgument, {"'w'", "dtype or shape"});
  write_parameter(config(R"([{"as_int":1}])", "0", "false", kFloat, R"([{"as_int":4}])"),
                  floats({0, 1, 2, 3}));
  expect_refused(Code::kInvalidArgument, {"'w'", "dtype or shape"});
}

TEST_F(Archive, a_parameter_with_too_few_bytes) {
  write_parameter(config(kRowMajor, "0"), floats({0, 1, 2}));
  expect_refused(Code::kInvalidArgument, {"'w'", "12 bytes of 16"});
  write_parameter(config(kRowMajor, "1"), floats({0, 1, 2, 3}));
  expect_refused(Code::kInvalidArgument, {"'w'", "16 bytes of 20"});
}

TEST_F(Archive, a_parameter_whose_strides_overflow) {
  write_parameter(config(R"([{"as_int":9223372036854775807},{"as_int":2}])", "0"),
                  floats({0, 1, 2, 3}));
  expect_refused(Code::kInvalidArgument, {"'w'", "overflow"});
}

// The constant has every second element of its file, from the second on.
TEST_F(Archive, numbers_out_of_its_constants_are_known) {
  ModelText model;
  model.input("x", kFloat, {1})
      .constant("t", kLong, {2})
      .integer_value("n", "u0")
      .node("aten.select.int", {tensor("self", "c_t"), integer("dim", 0), integer("index", 1)},
            "one", kLong, std::vector<int64_t>{})
      .raw_node("aten.item.default", {tensor("self", "one")}, R"([{"as_sym_int":{"as_name":"n"}}])")
      .symbolic_node("aten.arange.default", {argument("end", "as_sym_int", R"({"as_name":"n"})")},
                     "range", kLong, {"u0"})
      .output("range");
  auto entries = archive_entries(model.json());
  entries["m/data/constants/model_constants_config.json"] =
      R"({"config":{"t":)" + config(R"([{"as_int":2}])", "1", "false", kLong, R"([{"as_int":2}])") +
      "}}";
  const std::array<int64_t, 4> stored = {9, 7, 9, 3};
  const std::string bytes(reinterpret_cast<const char*>(stored.data()), sizeof stored);
  entries["m/data/constants/weight_0"] = bytes;
  write(entries);
  const auto program = read_exported_program(file());
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_EQ(program->graph.node(program->graph.outputs()[0]).shape, (Shape{3}));

  entries["m/data/constants/weight_0"] = bytes.substr(0, 24);
  write(entries);
  expect_refused(Code::kUnsupported, {"while it runs"});
}

TEST_F(Archive, a_parameter_without_bytes_is_a_graph_only_archive) {
  write_parameter(config(kRowMajor, "0"), "");
  const auto program = read_exported_program(file());
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_FALSE(program->inputs[0].has_payload);
}

TEST_F(Archive, a_weights_config_that_is_no_json) {
  auto entries = archive_entries(relu());
  entries["m/data/weights/model_weights_config.json"] = "{";
  write(entries);
  expect_refused(Code::kInvalidArgument, {"model_weights_config.json", "JSON"});
}

TEST_F(Archive, the_text_form_is_recognised_by_content) {
  write(archive_entries(relu()));
  const Graph graph = read_graph_file(file()).value().graph;
  write_bytes(print(graph));
  const auto program = read_graph_file(file());
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_EQ(program->graph, graph);
  ASSERT_EQ(program->inputs.size(), 1u);
  EXPECT_EQ(program->inputs[0].kind, ExportedInput::Kind::kUser);
  EXPECT_EQ(program->inputs[0].name, "in0");
  EXPECT_TRUE(is_dense(program->inputs[0]));
}

TEST_F(Archive, a_text_form_with_a_mistake_names_the_file_and_the_line) {
  write_bytes("kiln.graph 1\n%0 = input 0 : f32[2]\n%1 = wobble %0 : f32[2]\nreturn %1\n");
  expect_refused(Code::kInvalidArgument, {"m.pt2", "3"});
}

}  // namespace
}  // namespace kiln
