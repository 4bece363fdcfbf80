// Launches on tensors as DLPack has them: what kiln_program_launch() leaves to the caller (sizes, strides, outputs, the
// arena) is checked and made here.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "client/c_call.h"
#include "client/c_program.h"
#include "client/compiled_program.h"
#include "compiler_core/runtime/device.h"

extern "C" {

// The structures of dlpack.h, an ABI that versions 0.2 to 1.x share.
struct DLDevice {
  int32_t type, id;
};
struct DLDataType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t rank;
  DLDataType dtype;
  int64_t* sizes;
  int64_t* strides;  // in elements; NULL: dense row-major
  uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor tensor;
  void* manager;
  void (*deleter)(DLManagedTensor* self);
};

}  // extern "C"

namespace kiln {
namespace {

enum DLDeviceType : int32_t { kHost = 1, kCuda = 2, kPinned = 3, kManaged = 13 };

std::vector<int64_t> dense_strides(std::span<const int64_t> sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t axis = sizes.size(); axis-- > 1;)
    strides[axis - 1] = strides[axis] * std::max<int64_t>(sizes[axis], 1);
  return strides;
}

int64_t elements(std::span<const int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

// Memory of the program's device, given back when it goes.
class Memory {
 public:
  Memory(std::shared_ptr<const Device> device, DevicePtr at)
      : device_(std::move(device)), at_(at) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { device_->release(at_); }
  DevicePtr at() const { return at_; }

 private:
  std::shared_ptr<const Device> device_;
  DevicePtr at_;
};
using SharedMemory = std::shared_ptr<const Memory>;

Result<SharedMemory> allocate(const std::shared_ptr<const Device>& device, int64_t bytes) {
  TRY(const DevicePtr at, device->allocate(std::max<int64_t>(bytes, 1)));
  return std::make_shared<const Memory>(device, at);
}

DevicePtr aligned(DevicePtr at) {
  return (at + KILN_ARENA_ALIGNMENT - 1) / KILN_ARENA_ALIGNMENT * KILN_ARENA_ALIGNMENT;
}

// An output, with what its tensor points at.
struct Made {
  DLManagedTensor managed{};
  std::vector<int64_t> sizes, strides;
  SharedMemory memory;
  SharedMemory arena;  // on a GPU, whose work may not be done yet
};

void give_back(DLManagedTensor* tensor) {
  delete static_cast<Made*>(tensor->manager);
}

class DlpackCall {
 public:
  DlpackCall(const kiln_program& program, std::shared_ptr<const Device> device)
      : program_(program), device_(std::move(device)) {}

  Status run(DLManagedTensor* const* inputs, DLManagedTensor** outputs, Stream stream) {
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      if (program_.inputs[i].tensor.type_bits == 0) {  // which the program does not read
        from_.push_back(0);
        sizes_.push_back(nullptr);
        continue;
      }
      if (inputs[i] == nullptr) return fail(Code::kInvalidArgument, name_of(i) + " is NULL");
      TRY_STATUS(take(i, inputs[i]->tensor));
    }
    symbols_.resize(program_.symbols.size());
    if (kiln_program_bind(&program_, sizes_.data(), symbols_.data()) != KILN_OK)
      return fail(Code::kInvalidArgument, kiln_last_error());
    TRY_STATUS(make_outputs());
    TRY_STATUS(launch(stream));
    for (size_t i = 0; i < made_.size(); ++i) outputs[i] = &made_[i].release()->managed;
    return {};
  }

 private:
  std::string name_of(size_t input) const {
    const std::string& name = program_.inputs[input].name;
    return name.empty() ? fmt::format("input {}", input) : fmt::format("input '{}'", name);
  }
  bool is_host() const { return device_->is_host(); }

  // Checks an input and notes where it lies.
  Status take(size_t input, const DLTensor& given) {
    const Description& wanted = program_.inputs[input];
    const auto refuse = [&](const std::string& why) {
      return fail(Code::kInvalidArgument, name_of(input) + " " + why);
    };
    const bool here =
        is_host() ? given.device.type == kHost || given.device.type == kPinned
                  : given.device.type == kManaged ||
                        (given.device.type == kCuda && given.device.id == device_->ordinal());
    if (!here)
      return refuse(fmt::format("is on DLPack device {}:{}, and the program is for {}",
                                given.device.type, given.device.id, program_.target));
    if (given.dtype.code != wanted.tensor.type_code ||
        given.dtype.bits != wanted.tensor.type_bits || given.dtype.lanes != 1)
      return refuse(fmt::format(
          "has DLPack dtype {{{}, {}, {}}}, and the program takes {{{}, {}, 1}}", given.dtype.code,
          given.dtype.bits, given.dtype.lanes, wanted.tensor.type_code, wanted.tensor.type_bits));
    const std::span<const int64_t> sizes(given.sizes, static_cast<size_t>(std::max(given.rank, 0)));
    const bool fits = std::ranges::equal(sizes, wanted.sizes, [](int64_t have, int64_t want) {
      return have == want || (want < 0 && have >= 0);
    });
    if (!fits)
      return refuse(fmt::format("has sizes [{}], and the program takes {}", fmt::join(sizes, ","),
                                wanted.shape));
    const std::vector<int64_t> dense = dense_strides(sizes);
    const std::span<const int64_t> have =
        given.strides == nullptr ? std::span<const int64_t>(dense)
                                 : std::span<const int64_t>(given.strides, sizes.size());
    const std::vector<int64_t>& want = wanted.strides.empty() ? dense : wanted.strides;
    for (size_t axis = 0; axis < sizes.size() && elements(sizes) > 0; ++axis)
      if (sizes[axis] > 1 && have[axis] != want[axis])
        return refuse(
            fmt::format("has strides [{}], and the program takes [{}]: give a copy that has them",
                        fmt::join(have, ","), fmt::join(want, ",")));
    from_.push_back(device_ptr(given.data) + given.byte_offset);
    sizes_.push_back(given.sizes);
    return {};
  }

  Status make_outputs() {
    for (size_t i = 0; i < program_.outputs.size(); ++i) {
      const kiln_tensor& wanted = program_.outputs[i].tensor;
      auto made = std::make_unique<Made>();
      made->sizes.resize(program_.outputs[i].sizes.size());
      if (kiln_program_output_sizes(&program_, static_cast<int32_t>(i), symbols_.data(),
                                    made->sizes.data()) != KILN_OK)
        return fail(Code::kInvalidArgument, kiln_last_error());
      made->strides = dense_strides(made->sizes);
      TRY(made->memory, allocate(device_, elements(made->sizes) * wanted.type_bits / 8));
      void* const data =
          reinterpret_cast<void*>(made->memory->at());  // NOLINT(performance-no-int-to-ptr)
      made->managed = {.tensor = {.data = data,
                                  .device = {is_host() ? kHost : kCuda, device_->ordinal()},
                                  .rank = wanted.rank,
                                  .dtype = {wanted.type_code, wanted.type_bits, 1},
                                  .sizes = made->sizes.data(),
                                  .strides = made->strides.data(),
                                  .byte_offset = 0},
                       .manager = made.get(),
                       .deleter = give_back};
      to_.push_back(made->memory->at());
      made_.push_back(std::move(made));
    }
    return {};
  }

  Status launch(Stream stream) {
    TRY(const int64_t bytes, program_.program->arena_bytes(symbols_));
    TRY(SharedMemory arena, allocate(device_, bytes + KILN_ARENA_ALIGNMENT));
    TRY_STATUS(program_.program->launch(from_, to_, aligned(arena->at()), stream, symbols_));
    for (const auto& each : made_) each->arena = arena;
    return {};
  }

  const kiln_program& program_;
  const std::shared_ptr<const Device> device_;
  std::vector<DevicePtr> from_, to_;
  std::vector<const int64_t*> sizes_;
  std::vector<int64_t> symbols_;
  std::vector<std::unique_ptr<Made>> made_;
};

}  // namespace
}  // namespace kiln

using namespace kiln;

extern "C" kiln_code kiln_program_run_dlpack(const kiln_program* program,
                                             DLManagedTensor* const* inputs,
                                             DLManagedTensor** outputs, void* stream) {
  if (inputs == nullptr || outputs == nullptr)
    return missing("the inputs or the place for outputs");
  std::shared_ptr<const Device> device = place_of(*program->program);
  if (device == nullptr)
    return failed({Code::kInvalidArgument, "the program was fetched only, and cannot run", 0});
  return code_of(DlpackCall(*program, std::move(device)).run(inputs, outputs, stream));
}
