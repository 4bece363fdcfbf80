// Whole programs whose sizes come at run time, on the device: compiled once, against the
// interpreter at every size.
#include <cmath>

#include "compiler_core/compile/local.h"
#include "compiler_core/compile/nvrtc_compiler.h"
#include "compiler_core/ir/interpreter.h"
#include "compiler_core/runtime/executable.h"
#include "tests/compiler_core/compile/dynamic_models.h"
#include "tests/gpu/gpu_lab.h"

namespace kiln {
namespace {

using Sizes = std::vector<std::vector<int64_t>>;

class DevicePrograms : public test::GpuTest {
 protected:
  // The bytes of `tensors` on the device, or room for them.
  Result<std::vector<DeviceBuffer>> there(std::span<const Tensor> tensors) const {
    std::vector<DeviceBuffer> buffers;
    for (const Tensor& tensor : tensors) {
      TRY(DeviceBuffer buffer, DeviceBuffer::allocate(lab_->device(), tensor.byte_size()));
      TRY_STATUS(lab_->device()->copy_to_device(buffer.data(), tensor.bytes()));
      buffers.push_back(std::move(buffer));
    }
    return buffers;
  }
  static std::vector<DevicePtr> pointers(std::span<const DeviceBuffer> buffers) {
    std::vector<DevicePtr> at;
    for (const DeviceBuffer& buffer : buffers) at.push_back(buffer.data());
    return at;
  }

  Status run(const Executable& executable, std::span<const Tensor> inputs,
             std::span<Tensor> outputs, std::span<const int64_t> symbols) const {
    TRY(const auto in, there(inputs));
    TRY(const auto out, there(outputs));
    TRY_STATUS(executable.launch(pointers(in), pointers(out), nullptr, symbols));
    TRY_STATUS(lab_->device()->synchronize(nullptr));
    for (size_t i = 0; i < outputs.size(); ++i)
      TRY_STATUS(lab_->device()->copy_to_host(outputs[i].bytes(), out[i].data()));
    return {};
  }

  void expect_right_at(const NormalForm& form, const Executable& executable,
                       const std::vector<int64_t>& symbols) const {
    SCOPED_TRACE(::testing::PrintToString(symbols));
    const std::vector<Tensor> inputs = testing::model_inputs(form.graph, symbols);
    std::vector<const Tensor*> operands;
    for (const Tensor& tensor : inputs) operands.push_back(&tensor);
    const auto expected = interpret(form.graph, operands, Precision::kHigh);
    ASSERT_TRUE(expected) << expected.error().message;
    std::vector<Tensor> outputs;
    for (const Tensor& tensor : *expected) outputs.emplace_back(tensor.dtype(), tensor.sizes());
    const Status ran = run(executable, inputs, outputs, symbols);
    ASSERT_TRUE(ran) << ran.error().message;
    for (size_t o = 0; o < outputs.size(); ++o)
      for (int64_t i = 0; i < outputs[o].numel(); ++i) {
        const double wanted = (*expected)[o].get(i);
        ASSERT_NEAR(outputs[o].get(i), wanted, 2e-4 * (1 + std::abs(wanted)))
            << "output " << o << ", element " << i;
      }
  }

  void expect_right(const NormalForm& form, const Sizes& sizes) const {
    auto nvrtc = Nvrtc::find(lab_->flags().libnvrtc);
    ASSERT_TRUE(nvrtc) << nvrtc.error().message;
    const NvrtcCompiler compiler(*std::move(nvrtc));
    const Target target = lab_->device()->facts().target();
    const auto local = compile_locally(form.graph, form.digest, target, compiler, 4);
    ASSERT_TRUE(local) << local.error().message;
    const auto executable = Executable::load(lab_->device(), local->program, local->artifacts, {});
    ASSERT_TRUE(executable) << executable.error().message;
    for (const auto& symbols : sizes) expect_right_at(form, *executable, symbols);
  }
};

TEST_F(DevicePrograms, AConvolutionalNetworkOfAnyBatch) {
  expect_right(testing::convolutional_network(), {{1}, {7}, {64}});
}
TEST_F(DevicePrograms, ATransformerBlockOfAnyBatchAndLength) {
  expect_right(testing::transformer_of_any_batch_and_length(), {{1, 1}, {7, 5}, {1, 130}});
}
TEST_F(DevicePrograms, ALanguageModelOfAnyBatchAndLength) {
  expect_right(testing::language_model(), {{1, 1}, {7, 3}, {128, 1}});
}
TEST_F(DevicePrograms, SortsScansAndScattersOfAnyBatch) {
  expect_right(testing::sorts_scans_and_scatters(), {{1}, {33}, {2000}});
}

}  // namespace
}  // namespace kiln
