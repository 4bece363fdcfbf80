// Writing by index, orders, rearrangements and resampling.
#include <gtest/gtest.h>

#include "tests/compiler_core/frontend/one_node.h"

namespace kiln {
namespace {

using namespace kiln::testing;  // NOLINT: the vocabulary of these tests

std::string indices(const std::string& json) {
  return argument("indices", "as_optional_tensors", json);
}
constexpr const char* kFirst = R"([{"as_tensor":{"name":"z"}}])";
constexpr const char* kSecond = R"([{"as_none":true},{"as_tensor":{"name":"z"}}])";

TEST(Scatter, along_an_axis) {
  const std::vector<OneNode::In> three = {{kFloat, {2, 3}, {1, 2, 3, 4, 5, 6}},
                                          {kLong, {2, 2}, {2, 0, 1, 1}},
                                          {kFloat, {2, 3}, {10, 20, 30, 40, 50, 60}}};
  const std::vector<std::string> arguments = {kX, integer("dim", 1), tensor("index", "z"),
                                              tensor("src", "w")};
  expect_values({"aten.scatter.src", arguments, three, kFloat, {2, 3}}, {20, 2, 10, 4, 50, 6});
  expect_values({"aten.scatter_add.default", arguments, three, kFloat, {2, 3}},
                {21, 2, 13, 4, 95, 6});
  const auto reduced = [&](const std::string& how, bool include_self) {
    std::vector<std::string> all = arguments;
    all.push_back(text("reduce", how));
    all.push_back(flag("include_self", include_self));
    return OneNode{"aten.scatter_reduce.two", all, three, kFloat, {2, 3}};
  };
  expect_values(reduced("mean", true), {10.5, 2, 6.5, 4, 95.0 / 3, 6});
  expect_values(reduced("mean", false), {20, 2, 10, 4, 45, 6});
  expect_values(reduced("amax", true), {20, 2, 10, 4, 50, 6});
  expect_values(reduced("prod", false), {20, 2, 10, 4, 2000, 6});
  expect_values({"aten.scatter.value",
                 {kX, integer("dim", 0), tensor("index", "z"), real("value", "9.0")},
                 {{kFloat, {3, 2}, {1, 2, 3, 4, 5, 6}}, {kLong, {2, 2}, {0, 2, 1, 2}}},
                 kFloat,
                 {3, 2}},
                {9, 2, 9, 4, 5, 9});
}

TEST(Scatter, index_put_sets_or_accumulates_rows_columns_and_masks) {
  const OneNode::In x = {kFloat, {2, 3}, {1, 2, 3, 4, 5, 6}};
  expect_values({"aten.index_put.default",
                 {kX, indices(kFirst), tensor("values", "w"), flag("accumulate", true)},
                 {x, {kLong, {3}, {0, -1, 0}}, {kFloat, {3, 3}, {1, 1, 1, 2, 2, 2, 3, 3, 3}}},
                 kFloat,
                 {2, 3}},
                {5, 6, 7, 6, 7, 8});
  expect_values({"aten.index_put.default",
                 {kX, indices(kSecond), tensor("values", "w")},
                 {x, {kLong, {2}, {2, 0}}, {kFloat, {2}, {7, 8}}},
                 kFloat,
                 {2, 3}},
                {8, 2, 7, 8, 5, 7});
  // One place: no Scatter. A negative one counts from the end.
  for (const double place : {1.0, -2.0})
    expect_values({"aten.index_put.default",
                   {kX, indices(kSecond), tensor("values", "w")},
                   {x, {kLong, {1}, {place}}, {kFloat, {2, 1}, {7, 8}}},
                   kFloat,
                   {2, 3}},
                  {1, 7, 3, 4, 8, 6});
  expect_values({"aten.index_copy.default",
                 {kX, integer("dim", 1), tensor("index", "z"), tensor("source", "w")},
                 {x, {kLong, {1}, {2}}, {kFloat, {2, 1}, {7, 8}}},
                 kFloat,
                 {2, 3}},
                {1, 2, 7, 4, 5, 8});
  expect_values({"aten.index_put.default",
                 {kX, indices(kFirst), tensor("values", "w")},
                 {x, {kBool, {2, 3}, {1, 0, 0, 0, 1, 1}}, {kFloat, {}, {0}}},
                 kFloat,
                 {2, 3}},
                {0, 2, 3, 4, 0, 0});
  const auto counted = OneNode{
      "aten.index_put.default",
      {kX, indices(kFirst), tensor("values", "w")},
      {x, {kBool, {2, 3}, {1, 0, 0, 0, 1, 1}}, {kFloat, {3}, {7, 8, 9}}},
      kFloat,
      {2, 3}}.run();
  ASSERT_FALSE(counted);
  EXPECT_EQ(counted.error().code, Code::kUnsupported);
}

TEST(Scatter, rows_and_slices_are_replaced) {
  const OneNode::In x = {kFloat, {2, 3}, {1, 2, 3, 4, 5, 6}};
  expect_values(
      {"aten.index_add.default",
       {kX, integer("dim", 1), tensor("index", "z"), tensor("source", "w"), integer("alpha", 2)},
       {x, {kLong, {2}, {2, 2}}, {kFloat, {2, 2}, {1, 2, 3, 4}}},
       kFloat,
       {2, 3}},
      {1, 2, 9, 4, 5, 20});
  expect_values(
      {"aten.slice_scatter.default",
       {kX, tensor("src", "z"), integer("dim", 1), integer("start", 1), integer("end", INT64_MAX)},
       {x, {kFloat, {2, 2}, {7, 8, 9, 10}}},
       kFloat,
       {2, 3}},
      {1, 7, 8, 4, 9, 10});
  expect_values({"aten.slice_scatter.default",
                 {kX, tensor("src", "z"), integer("dim", 1), integer("start", 0), integer("end", 3),
                  integer("step", 2)},
                 {x, {kFloat, {2, 2}, {7, 8, 9, 10}}},
                 kFloat,
                 {2, 3}},
                {7, 2, 8, 9, 5, 10});
  expect_values({"aten.select_scatter.default",
                 {kX, tensor("src", "z"), integer("dim", 1), integer("index", -1)},
                 {x, {kFloat, {2}, {7, 8}}},
                 kFloat,
                 {2, 3}},
                {1, 2, 7, 4, 5, 8});
}

TEST(Orders, sort_topk_and_median) {
  const OneNode::In x = {kFloat, {2, 3}, {3, 1, 2, kNan, 5, 4}};
  expect_values({"aten.argsort.default", {kX, integer("dim", -1)}, {x}, kLong, {2, 3}},
                {1, 2, 0, 2, 1, 0});
  ModelText sorted;
  sorted.input("x", kFloat, {3, 2})
      .declare("v", kFloat, {"3", "2"})
      .declare("i", kLong, {"3", "2"})
      .raw_node("aten.sort.default", {kX, integer("dim", 0), flag("descending", true)},
                R"([{"as_tensor":{"name":"v"}},{"as_tensor":{"name":"i"}}])")
      .output("v")
      .output("i");
  const auto program = lower(sorted.json());
  ASSERT_TRUE(program) << program.error().message;
  const Tensor in = make_tensor(DType::kF32, {3, 2}, Doubles{1, 9, 3, 7, 2, 8});
  const Tensor* const inputs[] = {&in};
  const auto outputs = interpret(program->graph, inputs);
  ASSERT_TRUE(outputs) << outputs.error().message;
  EXPECT_EQ(values_of((*outputs)[0]), (Doubles{3, 9, 2, 8, 1, 7}));
  EXPECT_EQ(values_of((*outputs)[1]), (Doubles{1, 0, 2, 2, 0, 1}));
  expect_values({"aten.median.default", {kX}, {{kFloat, {4}, {4, 1, 3, 2}}}, kFloat, {}}, {2});
  expect_values({"aten.median.default", {kX}, {{kFloat, {3}, {1, kNan, 2}}}, kFloat, {}}, {kNan});
}

TEST(Orders, searches_in_what_is_sorted) {
  const OneNode::In x = {kFloat, {5}, {0, 1, 2, 3, kNan}}, edges = {kFloat, {3}, {1, 2, 2}};
  expect_values({"aten.bucketize.Tensor", {kX, tensor("boundaries", "z")}, {x, edges}, kLong, {5}},
                {0, 0, 1, 3, 3});
  expect_values({"aten.bucketize.Tensor",
                 {kX, tensor("boundaries", "z"), flag("right", true)},
                 {x, edges},
                 kLong,
                 {5}},
                {0, 1, 3, 3, 3});
}

TEST(Rearranging, diagonals_rolls_and_windows) {
  const OneNode::In x = {kFloat, {2, 3}, {1, 2, 3, 4, 5, 6}};
  expect_values({"aten.diagonal.default", {kX, integer("offset", 1)}, {x}, kFloat, {2}}, {2, 6});
  expect_values({"aten.diagonal.default", {kX, integer("offset", -1)}, {x}, kFloat, {1}}, {4});
  expect_values({"aten.diag_embed.default",
                 {kX, integer("offset", -1)},
                 {{kFloat, {2}, {7, 8}}},
                 kFloat,
                 {3, 3}},
                {0, 0, 0, 7, 0, 0, 0, 8, 0});
  expect_values({"aten.diag_embed.default",
                 {kX, integer("offset", 1)},
                 {{kFloat, {2}, {7, 8}}},
                 kFloat,
                 {3, 3}},
                {0, 7, 0, 0, 0, 8, 0, 0, 0});
  expect_values({"aten.roll.default",
                 {kX, integers("shifts", {1, -1}), integers("dims", {1, 0})},
                 {x},
                 kFloat,
                 {2, 3}},
                {6, 4, 5, 3, 1, 2});
  expect_values({"aten.unfold.default",
                 {kX, integer("dimension", 0), integer("size", 3), integer("step", 2)},
                 {{kFloat, {6}, {1, 2, 3, 4, 5, 6}}},
                 kFloat,
                 {2, 3}},
                {1, 2, 3, 3, 4, 5});
  expect_values({"aten.repeat_interleave.self_int",
                 {kX, integer("repeats", 2), integer("dim", 1)},
                 {x},
                 kFloat,
                 {2, 6}},
                {1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6});
  expect_values({"aten.tril_indices.default",
                 {integer("row", 3), integer("col", 3), integer("offset", -1)},
                 {},
                 kLong,
                 {2, 3}},
                {1, 2, 2, 0, 0, 1});
  expect_values({"aten.triu_indices.default",
                 {integer("row", 2), integer("col", 3), integer("offset", 1)},
                 {},
                 kLong,
                 {2, 3}},
                {0, 0, 1, 1, 2, 2});
  expect_values({"aten.one_hot.default",
                 {kX, integer("num_classes", 3)},
                 {{kLong, {2}, {2, 0}}},
                 kLong,
                 {2, 3}},
                {0, 0, 1, 1, 0, 0});
}

TEST(Rearranging, pixels_move_between_channels_and_space) {
  expect_values({"aten.pixel_shuffle.default",
                 {kX, integer("upscale_factor", 2)},
                 {{kFloat, {1, 4, 1, 2}, {1, 2, 3, 4, 5, 6, 7, 8}}},
                 kFloat,
                 {1, 1, 2, 4}},
                {1, 3, 2, 4, 5, 7, 6, 8});
}

TEST(Einsum, contracts_batches_traces_and_broadcasts) {
  const auto equation = [](const std::string& e) { return text("equation", e); };
  const OneNode::In x = {kFloat, {2, 2}, {1, 2, 3, 4}}, y = {kFloat, {2, 2}, {5, 6, 7, 8}};
  const std::string both = tensors("tensors", {"x", "z"}), one = tensors("tensors", {"x"});
  expect_values({"aten.einsum.default", {equation("ij,jk->ik"), both}, {x, y}, kFloat, {2, 2}},
                {19, 22, 43, 50});
  expect_values({"aten.einsum.default", {equation("ij,kj->ki"), both}, {x, y}, kFloat, {2, 2}},
                {17, 39, 23, 53});
  expect_values({"aten.einsum.default", {equation("ii->i"), one}, {x}, kFloat, {2}}, {1, 4});
  expect_values({"aten.einsum.default", {equation("...j->..."), one}, {x}, kFloat, {2}}, {3, 7});
  expect_values({"aten.einsum.default",
                 {equation("i,j->ij"), both},
                 {{kFloat, {2}, {1, 2}}, {kFloat, {2}, {3, 4}}},
                 kFloat,
                 {2, 2}},
                {3, 4, 6, 8});
}

TEST(Resampling, images_grow_by_repetition_and_by_lines) {
  const OneNode::In x = {kFloat, {1, 1, 1, 2}, {1, 3}};
  const std::string size = integers("output_size", {1, 4});
  expect_values(
      {"aten.upsample_nearest2d.vec", {tensor("input", "x"), size}, {x}, kFloat, {1, 1, 1, 4}},
      {1, 1, 3, 3});
  expect_values({"aten.upsample_bilinear2d.vec",
                 {tensor("input", "x"), size, flag("align_corners", false)},
                 {x},
                 kFloat,
                 {1, 1, 1, 4}},
                {1, 1.5, 2.5, 3});
  expect_values({"aten.upsample_bilinear2d.vec",
                 {tensor("input", "x"), size, flag("align_corners", true)},
                 {x},
                 kFloat,
                 {1, 1, 1, 4}},
                {1, 5.0 / 3, 7.0 / 3, 3});
  // A line stays a line under cubic weights, away from the edges.
  expect_values(
      {"aten.upsample_bicubic2d.vec",
       {tensor("input", "x"), integers("output_size", {1, 9}), flag("align_corners", true)},
       {{kFloat, {1, 1, 1, 5}, {0, 2, 4, 6, 8}}},
       kFloat,
       {1, 1, 1, 9}},
      {0, 0.8125, 2, 3, 4, 5, 6, 7.1875, 8});
}

TEST(Resampling, pads_mirror_and_repeat_and_columns_add_up) {
  const OneNode::In x = {kFloat, {1, 3}, {1, 2, 3}};
  expect_values(
      {"aten.reflection_pad1d.default", {kX, integers("padding", {2, 1})}, {x}, kFloat, {1, 6}},
      {3, 2, 1, 2, 3, 2});
  expect_values(
      {"aten.replication_pad1d.default", {kX, integers("padding", {2, 1})}, {x}, kFloat, {1, 6}},
      {1, 1, 1, 2, 3, 3});
  expect_values({"aten.pad.default",
                 {kX, integers("pad", {1, 1}), text("mode", "circular")},
                 {x},
                 kFloat,
                 {1, 5}},
                {3, 1, 2, 3, 1});
  const std::vector<std::string> window = {integers("kernel_size", {1, 2}),
                                           integers("dilation", {1, 1}),
                                           integers("padding", {0, 0}), integers("stride", {1, 1})};
  std::vector<std::string> im2col = {kX}, col2im = {kX, integers("output_size", {1, 3})};
  im2col.insert(im2col.end(), window.begin(), window.end());
  col2im.insert(col2im.end(), window.begin(), window.end());
  expect_values(
      {"aten.im2col.default", im2col, {{kFloat, {1, 1, 1, 3}, {1, 2, 3}}}, kFloat, {1, 2, 2}},
      {1, 2, 2, 3});
  expect_values(
      {"aten.col2im.default", col2im, {{kFloat, {1, 2, 2}, {1, 2, 2, 3}}}, kFloat, {1, 1, 1, 3}},
      {1, 4, 3});
}

TEST(Resampling, a_grid_samples_between_pixels) {
  expect_values(
      {"aten.grid_sampler_2d.default",
       {tensor("input", "x"), tensor("grid", "z"), integer("interpolation_mode", 0),
        integer("padding_mode", 0), flag("align_corners", true)},
       {{kFloat, {1, 1, 2, 2}, {1, 2, 3, 4}}, {kFloat, {1, 1, 3, 2}, {-1, -1, 0, 0, 2, 1}}},
       kFloat,
       {1, 1, 1, 3}},
      {1, 2.5, 2});
}

TEST(EmbeddingBag, bags_of_any_size_and_mode) {
  const OneNode::In table = {kFloat, {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}},
                    ids = {kLong, {4}, {0, 3, 1, 2}}, offsets = {kLong, {3}, {0, 1, 1}};
  const auto bag = [&](int64_t mode) {
    return OneNode{
        "aten.embedding_bag.padding_idx",
        {tensor("weight", "x"), tensor("indices", "z"), tensor("offsets", "w"),
         flag("scale_grad_by_freq", false), integer("mode", mode), flag("sparse", false),
         none("per_sample_weights"), flag("include_last_offset", false), integer("padding_idx", 2)},
        {table, ids, offsets},
        kFloat,
        {3, 2}};
  };
  expect_values(bag(0), {1, 2, 0, 0, 10, 12});
  expect_values(bag(1), {1, 2, 0, 0, 5, 6});
  expect_values(bag(2), {1, 2, 0, 0, 7, 8});
}

// What fails on the way has no shape to go on with; model_fuzz found both.
TEST(EmbeddingBag, what_cannot_be_is_refused) {
  const OneNode::In table = {kFloat, {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}},
                    ids = {kLong, {4}, {0, 3, 1, 2}};
  const auto refused = [&](const OneNode::In& offsets, const OneNode::In& weights, bool last) {
    const OneNode bag = {
        "aten.embedding_bag.default",
        {tensor("weight", "x"), tensor("indices", "z"), tensor("offsets", "w"),
         flag("scale_grad_by_freq", false), integer("mode", 0), flag("sparse", false),
         tensor("per_sample_weights", "v"), flag("include_last_offset", last)},
        {table, ids, offsets, weights},
        kFloat,
        {3, 2}};
    const auto outputs = bag.run();
    return !outputs && outputs.error().code == Code::kInvalidArgument;
  };
  const OneNode::In none = {kLong, {0}, {}}, some = {kLong, {3}, {0, 1, 1}};
  EXPECT_TRUE(refused(none, {kFloat, {4}, {1, 1, 1, 1}}, true)) << "no offset, hence no last one";
  EXPECT_TRUE(refused(some, {kFloat, {3}, {1, 1, 1}}, false)) << "a weight is missing";
}

}  // namespace
}  // namespace kiln
