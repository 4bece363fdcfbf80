// Resizing of volumes against the mean of the eight corners around each place.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/compiler_core/frontend/one_node.h"

namespace kiln {
namespace {

using namespace kiln::testing;  // NOLINT: the vocabulary of these tests

constexpr int64_t kIn[] = {2, 3, 4}, kOut[] = {3, 5, 6};
constexpr int64_t kPlanes = 2;

struct Place {
  int64_t low, high;
  double weight;  // of `high`
};

// Where element `i` of an output axis lies on the input's.
Place place_of(int64_t i, int axis, bool align_corners) {
  const auto in = static_cast<double>(kIn[axis]), out = static_cast<double>(kOut[axis]);
  const double source = align_corners
                            ? static_cast<double>(i) * (in - 1) / (out - 1)
                            : std::max((static_cast<double>(i) + 0.5) * in / out - 0.5, 0.0);
  const auto low = static_cast<int64_t>(source);
  return {low, std::min(low + 1, kIn[axis] - 1), source - static_cast<double>(low)};
}

Doubles resized(const Doubles& x, bool align_corners) {
  Doubles result;
  for (int64_t plane = 0; plane < kPlanes; ++plane)
    for (int64_t d = 0; d < kOut[0]; ++d)
      for (int64_t h = 0; h < kOut[1]; ++h)
        for (int64_t w = 0; w < kOut[2]; ++w) {
          const Place places[] = {place_of(d, 0, align_corners), place_of(h, 1, align_corners),
                                  place_of(w, 2, align_corners)};
          double sum = 0;
          for (unsigned corner = 0; corner < 8; ++corner) {
            int64_t flat = plane;
            double weight = 1;
            for (unsigned axis = 0; axis < 3; ++axis) {
              const bool high = (corner >> axis & 1) != 0;
              flat = flat * kIn[axis] + (high ? places[axis].high : places[axis].low);
              weight *= high ? places[axis].weight : 1 - places[axis].weight;
            }
            sum += weight * x[static_cast<size_t>(flat)];
          }
          result.push_back(sum);
        }
  return result;
}

TEST(Resampling, ATrilinearVolumeIsTheMeanOfItsCorners) {
  Doubles x;
  for (int i = 0; i < 48; ++i) x.push_back((i * 7 % 48) / 48.0);
  for (const bool align_corners : {false, true})
    expect_values({"aten.upsample_trilinear3d.vec",
                   {tensor("input", "x"), integers("output_size", {3, 5, 6}),
                    flag("align_corners", align_corners), none("scale_factors")},
                   {{kDouble, {1, kPlanes, 2, 3, 4}, x}},
                   kDouble,
                   {1, kPlanes, 3, 5, 6}},
                  resized(x, align_corners));
}

}  // namespace
}  // namespace kiln
