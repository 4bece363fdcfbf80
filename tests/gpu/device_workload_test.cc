// Inputs, guards and comparison on the device, against the host's.
#include "worker/runner/prepared_workload.h"

#include <cmath>
#include <limits>

#include "compiler_core/ir/text.h"
#include "tests/gpu/gpu_lab.h"
#include "tests/worker/prepared.h"

namespace kiln::runner {
namespace {

class DeviceWorkloadTest : public test::GpuTest {
 protected:
  PreparedWorkload made(const std::string& text, uint64_t seed = 7) {
    auto made = PreparedWorkload::make(device(), text, seed);
    EXPECT_TRUE(made.has_value()) << (made ? "" : made.error().message);
    return *std::move(made);
  }
  std::vector<uint8_t> read(DevicePtr from, int64_t bytes) {
    std::vector<uint8_t> got(static_cast<size_t>(bytes));
    EXPECT_TRUE(device().synchronize());
    EXPECT_TRUE(lab_->device()->copy_to_host(got, from));
    return got;
  }
  void write(DevicePtr to, std::span<const uint8_t> bytes) {
    EXPECT_TRUE(device().synchronize());
    EXPECT_TRUE(lab_->device()->copy_to_device(to, bytes));
  }
  void expect_host_inputs(const std::string& text) {
    SCOPED_TRACE(text);
    const PreparedWorkload there = made(text);
    test::PreparedOnCpu here(text, 7);
    ASSERT_EQ(there.inputs().size(), here.inputs().size());
    for (size_t i = 0; i < there.inputs().size(); ++i)
      EXPECT_TRUE(std::ranges::equal(read(there.inputs()[i].data, there.inputs()[i].bytes),
                                     here.inputs()[i].bytes()));
    ASSERT_EQ(there.symbols(), here.workload().symbols());
  }
};

constexpr const char* kTypes[] = {"f64", "f32", "f16", "bf16", "i8",
                                  "i16", "i32", "i64", "u8",   "bool"};

TEST_F(DeviceWorkloadTest, InputsAreTheHostsBitByBit) {
  for (const std::string type : kTypes)
    expect_host_inputs("kiln.graph 1\n%0 = input 0 : " + type + "[3,1001]\nreturn %0\n");
}

TEST_F(DeviceWorkloadTest, InputsArePositiveIndicesOrDivisorsWhereTheHostsAre) {
  for (const std::string type : {"f64", "f32", "f16", "bf16"})
    expect_host_inputs("kiln.graph 1\n%0 = input 0 : " + type + "[900]\n%1 = sqrt %0 : " + type +
                       "[900]\nreturn %1\n");
  for (const std::string type : {"f64", "f32", "bf16", "i32"})
    expect_host_inputs("kiln.graph 1\n%0 = input 0 : " + type +
                       "[9,500]\n%1 = reduce_prod %0 axes=[1] : " + type + "[9]\nreturn %1\n");
  expect_host_inputs(
      "kiln.graph 1\n%0 = input 0 : f32[3,5]\n%1 = input 1 : i64[400]\n"
      "%2 = gather %0 %1 : f32[400,5]\nreturn %2\n");
  expect_host_inputs(
      "kiln.graph 1\n%0 = input 0 : i32[500]\n%1 = input 1 : i32[500]\n"
      "%2 = div %0 %1 : i32[500]\nreturn %2\n");
  expect_host_inputs(
      "kiln.graph 1\ns0 = symbol 1..4096 hint 24\n%0 = input 0 : f32[s0,8]\n"
      "%1 = mul %0 %0 : f32[s0,8]\nreturn %1\n");
}

TEST_F(DeviceWorkloadTest, AChangedInputIsFoundAndDrawnAgain) {
  const PreparedWorkload there =
      made("kiln.graph 1\n%0 = input 0 : bf16[70000]\n%1 = neg %0 : bf16[70000]\nreturn %1\n");
  const auto changed = [&] {
    EXPECT_TRUE(there.check_input(0));
    return device().take().value()[0];
  };
  EXPECT_EQ(changed().count, 0);
  const DevicePtr element = there.inputs()[0].data + 2 * 69999;
  std::vector<uint8_t> bytes = read(element, 2);
  bytes[1] ^= 0x80;
  write(element, bytes);
  EXPECT_EQ(changed().count, 1);
  EXPECT_EQ(changed().first, 69999);
  EXPECT_TRUE(there.draw_input(0));
  EXPECT_EQ(changed().count, 0);
}

TEST_F(DeviceWorkloadTest, GuardsSeeTheNearestDamageAndAreRepaired) {
  const auto guarded = device().allocate_guarded("output 0", 1003);
  ASSERT_TRUE(guarded.has_value());
  const auto damage = [&] {
    EXPECT_TRUE(device().check_guards(*guarded));
    return guarded->damage(device().take().value()[0]);
  };
  EXPECT_EQ(damage(), std::nullopt);
  const std::vector<uint8_t> data(1003, 0x77), one(1, 0x77);
  write(guarded->data, data);
  EXPECT_EQ(damage(), std::nullopt);
  for (const int64_t where : {int64_t{66000}, int64_t{1700}, int64_t{1003}, int64_t{-60000},
                              int64_t{-1}}) {  // each nearer than the one before it, or in front
    write(guarded->data + static_cast<DevicePtr>(where), one);
    EXPECT_EQ(damage(), where);
  }
  EXPECT_TRUE(device().repair_guards(*guarded));
  EXPECT_EQ(damage(), std::nullopt);
}

// Plants values into the expected result and compares as the host does.
class DeviceCompareTest : public DeviceWorkloadTest {
 protected:
  void expect_same_as_host(const std::string& type,
                           const std::vector<std::pair<int64_t, double>>& planted) {
    SCOPED_TRACE(type);
    const std::string text = "kiln.graph 1\n%0 = input 0 : " + type + "[70000]\nreturn %0\n";
    PreparedWorkload there = made(text);
    const test::PreparedOnCpu here(text, 7);
    Tensor got = here.expected()[0].clone();
    for (const auto& [at, value] : planted)
      is_float(got.dtype()) ? got.set(at, value) : got.set_int(at, static_cast<int64_t>(value));
    write(there.outputs()[0].data, got.bytes());
    ASSERT_TRUE(there.compare_output(0, false));
    const auto tallies = device().take();
    ASSERT_TRUE(tallies.has_value());
    const auto difference = there.difference(0, tallies->at(0));
    const auto want =
        compare(got, here.expected()[0], nullptr, tolerance_of(parse_graph(text).value(), {}));
    ASSERT_EQ(difference.has_value(), want.has_value());
    if (!want) return;
    EXPECT_EQ(difference->count, want->count);
    EXPECT_EQ(difference->first, want->first);
    const auto element = there.describe_output(0, want->first, 0xFF);
    ASSERT_TRUE(element.has_value());
    EXPECT_EQ(element->text, describe_element(got, here.expected()[0], want->first));
  }
};

TEST_F(DeviceCompareTest, PlantedDifferencesAreTheHosts) {
  constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = NAN;
  for (const std::string type : {"f64", "f32", "f16", "bf16"}) {
    expect_same_as_host(type, {});
    expect_same_as_host(type, {{69999, 11}});
    expect_same_as_host(type, {{5, kNan}, {40000, kInf}, {66000, -kInf}});
    expect_same_as_host(type, {{68000, 3.5}, {123, 1e-30}, {30000, -3.5}});
  }
  for (const std::string type : {"i8", "i16", "i32", "i64", "u8", "bool"}) {
    expect_same_as_host(type, {});
    expect_same_as_host(type, {{0, 1}, {1, 0}, {2, 1}, {69998, 0}, {69999, 1}});
  }
}

TEST_F(DeviceWorkloadTest, AnInfinityMeetsTheSameInfinityOnly) {
  const std::string text =
      "kiln.graph 1\n%0 = input 0 : f32[1000]\n%1 = constant 1e30 : f32[]\n"
      "%2 = view %1 strides=[0] offset=[0] : f32[1000]\n"
      "%3 = mul %0 %2 : f32[1000]\n%4 = mul %3 %2 : f32[1000]\nreturn %4\n";
  PreparedWorkload there = made(text);
  Tensor got = test::PreparedOnCpu(text, 7).expected()[0].clone();
  ASSERT_TRUE(std::isinf(got.get(17)));
  write(there.outputs()[0].data, got.bytes());
  const auto wrong = [&] {
    EXPECT_TRUE(there.compare_output(0, false));
    return device().take().value()[0];
  };
  EXPECT_EQ(wrong().count, 0);
  got.set(17, -got.get(17));
  got.set(23, 3e38);
  write(there.outputs()[0].data, got.bytes());
  EXPECT_EQ(wrong().count, 2);
  EXPECT_EQ(wrong().first, 17);
}

TEST_F(DeviceWorkloadTest, WhatTheGraphAsDeclaredStraysByIsExcused) {
  // (x + 1e8) - 1e8 in f32 keeps almost nothing of x.
  PreparedWorkload there = made(
      "kiln.graph 1\n%0 = input 0 : f32[1000]\n%1 = constant 1e8 : f32[]\n"
      "%2 = view %1 strides=[0] offset=[0] : f32[1000]\n"
      "%3 = add %0 %2 : f32[1000]\n%4 = sub %3 %2 : f32[1000]\nreturn %4\n");
  const std::vector<uint8_t> zeros(4000);
  const auto wrong = [&](bool leniently) {
    EXPECT_TRUE(there.compare_output(0, leniently));
    return device().take().value()[0].count;
  };
  write(there.outputs()[0].data, zeros);
  EXPECT_GT(wrong(false), 500);
  EXPECT_EQ(wrong(true), 0);
  std::vector<float> far(1000, 1000.0F);
  write(there.outputs()[0].data, {reinterpret_cast<const uint8_t*>(far.data()), 4000});
  EXPECT_EQ(wrong(true), 1000);
}

TEST_F(DeviceWorkloadTest, DamageToWhatIsExpectedIsNoticed) {
  const PreparedWorkload there =
      made("kiln.graph 1\n%0 = input 0 : f32[5000]\n%1 = neg %0 : f32[5000]\nreturn %1\n");
  EXPECT_TRUE(there.check_expected());
  std::vector<Tally> tallies = device().take().value();
  EXPECT_TRUE(there.is_intact(tallies));
  tallies[0].mix ^= 1;
  EXPECT_FALSE(there.is_intact(tallies));
}

TEST_F(DeviceWorkloadTest, HostileGraphsAreRefused) {
  EXPECT_EQ(PreparedWorkload::make(device(), "", 1).error().code, Code::kInvalidArgument);
  const auto huge = PreparedWorkload::make(
      device(), "kiln.graph 1\n%0 = input 0 : f32[1000000,1000000]\nreturn %0\n", 1);
  EXPECT_FALSE(huge.has_value());
}

}  // namespace
}  // namespace kiln::runner
