#include "compiler_core/runtime/cuda_graph.h"

#include "compiler_core/runtime/cuda_kernel.h"
#include "tests/compiler_core/runtime/fake_gpu.h"

namespace kiln {
namespace {

class CudaGraphTest : public FakeGpuTest {
 protected:
  void SetUp() override {
    FakeGpuTest::SetUp();
    if (gpu_ == nullptr) return;
    auto kernel = CudaKernel::load(gpu_, scale_artifact("2"));
    ASSERT_TRUE(kernel) << kernel.error().message;
    kernel_.emplace(*std::move(kernel));
    workspace_ = memory(256);
  }
  std::function<Status(CudaStream)> scale(const DeviceBuffer& in, const DeviceBuffer& out) const {
    return [this, args = std::vector{in.data(), out.data()}](CudaStream stream) {
      return kernel_->launch(args, workspace_.data(), {}, stream, {});
    };
  }

  std::optional<CudaKernel> kernel_;
  DeviceBuffer workspace_;
};

TEST_F(CudaGraphTest, CapturingRunsNothingAndEveryReplayRunsAll) {
  const DeviceBuffer a = upload(ramp(1)), b = upload(ramp(0));
  const auto graph = CudaGraph::capture(gpu_, [&](CudaStream stream) -> Status {
    TRY_STATUS(scale(a, b)(stream));
    return scale(b, a)(stream);
  });
  ASSERT_TRUE(graph) << graph.error().message;
  ASSERT_TRUE(gpu_->synchronize(nullptr));
  EXPECT_EQ(download(b), ramp(0));
  ASSERT_TRUE(graph->replay(nullptr));
  EXPECT_EQ(download(a), ramp(4));
  ASSERT_TRUE(graph->replay(nullptr));
  EXPECT_EQ(download(a), ramp(16));
}

TEST_F(CudaGraphTest, AnUpdateBringsOtherPointersAndOtherLaunches) {
  const DeviceBuffer a = upload(ramp(1)), b = memory(256), c = upload(ramp(0));
  auto graph = CudaGraph::capture(gpu_, scale(a, b));
  ASSERT_TRUE(graph) << graph.error().message;
  ASSERT_TRUE(graph->update(scale(a, c)));
  ASSERT_TRUE(graph->replay(nullptr));
  EXPECT_EQ(download(c), ramp(2));
  // Of another shape: the instance cannot be updated, a new one is made.
  const Status updated = graph->update([&](CudaStream stream) -> Status {
    TRY_STATUS(scale(a, b)(stream));
    return gpu_->copy_on_device(c.data(), a.data(), 256, stream);
  });
  ASSERT_TRUE(updated) << updated.error().message;
  ASSERT_TRUE(graph->replay(nullptr));
  EXPECT_EQ(download(c), ramp(1));
  EXPECT_EQ(download(b), ramp(2));
}

TEST_F(CudaGraphTest, ALaunchThatFailsFailsTheCaptureAndNotTheNext) {
  const DeviceBuffer a = upload(ramp(1)), b = memory(256);
  const auto refused = CudaGraph::capture(
      gpu_, [](CudaStream) -> Status { return fail(Code::kInvalidArgument, "no such thing"); });
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "no such thing");
  auto graph = CudaGraph::capture(gpu_, scale(a, b));
  ASSERT_TRUE(graph);
  EXPECT_FALSE(graph->update([](CudaStream) -> Status { return fail(Code::kInternal, "no"); }));
  ASSERT_TRUE(graph->update(scale(a, b)));
  ASSERT_TRUE(graph->replay(nullptr));
  EXPECT_EQ(download(b), ramp(2));
}

TEST_F(CudaGraphTest, EventsTellTheTimeBetweenThem) {
  const DeviceBuffer a = upload(ramp(1)), b = memory(256);
  auto start = CudaEvent::create(gpu_), stop = CudaEvent::create(gpu_);
  ASSERT_TRUE(start && stop);
  ASSERT_TRUE(start->record(nullptr));
  ASSERT_TRUE(scale(a, b)(nullptr));
  ASSERT_TRUE(stop->record(nullptr));
  ASSERT_TRUE(gpu_->synchronize(nullptr));
  const auto us = stop->us_since(*start);
  ASSERT_TRUE(us) << us.error().message;
  EXPECT_GE(*us, 0);
  EXPECT_LE(*start->us_since(*stop), 0);
}

}  // namespace
}  // namespace kiln
