// Convolutions of every channel with a window of its own, on the CUDA cores, of images that lie
// channels last. Neighbouring threads have neighbouring channels, so that they read and store what
// lies side by side; the caches bring what windows share. A thread adds up `group` rows of `strip`
// results side by side, of LANES channels: a row of x that it has read serves all of them. Weights lie
// in shared memory as f32, channels inner.
//
// In front of it the generated source defines
//   struct Depthwise   channels, places (of a block: groups of rows and strips); channel_tiles; strip,
//                      group; threads; all_channels, in_height, in_width, height, width (of
//                      results); window_height, window_width, stride_*, dilation_*, above, before
//                      (zeros); x_align (elements); ahead: a thread reads all of x that it needs
//                      before it adds any of it up; strides of x: image, row, column; of the weight:
//                      w_channel, w_row, w_column
namespace {

using D = Depthwise;

constexpr int kVectors = D::channels / LANES;  // of a block's channels
constexpr int kGroups = (D::height + D::group - 1) / D::group;  // of an image's rows
constexpr int kStrips = (D::width + D::strip - 1) / D::strip;
constexpr int kWindow = D::window_height * D::window_width;
constexpr int kPitch = D::channels + LANES;  // floats: whole vectors
// What the results of `count` rows, or columns, reach.
KILN_CONSTANT int reach(int count, int stride, int window, int dilation) {
  return (count - 1) * stride + (window - 1) * dilation + 1;
}
constexpr int kLine = reach(D::strip, D::stride_width, D::window_width, D::dilation_width);
constexpr int kLines = reach(D::group, D::stride_height, D::window_height, D::dilation_height);

// A thread's share of the results.
struct DepthwisePlace {
  int image, row, column, channel;  // the first of each
  bool is_one;                      // there is such a place
  KILN_MEMBER DepthwisePlace(int block, int images) {
    const int slot = thread_index() / kVectors;
    const int place = block / D::channel_tiles * D::places + slot;
    channel = block % D::channel_tiles * D::channels + thread_index() % kVectors * LANES;
    column = place % kStrips * D::strip;
    row = place / kStrips % kGroups * D::group;
    image = place / kStrips / kGroups;
    is_one = slot < D::places && image < images && channel < D::all_channels;
  }
};

template <class T>
KILN_INLINE void hold_weights(const T* from, int first_channel, float* weights) {
  _Pragma("unroll 4") for (int i = thread_index(); i < D::channels * kWindow; i += D::threads) {
    // Neighbouring threads read what lies side by side.
    const int channel = i / kWindow, place = i % kWindow;
    if (first_channel + channel >= D::all_channels) continue;
    PackedOne<T> one;
    load_input(from + static_cast<long>(first_channel + channel) * D::w_channel +
                   place / D::window_width * D::w_row + place % D::window_width * D::w_column,
               one.bits_of);
    weights[place * kPitch + channel] = memory<T>::first(one);
  }
}

// Columns of a row of x that one thread needs.
template <class T>
struct DepthwiseLine {
  Packed<T> x[kLine];
  // `from` is the first of them; zeros where bit j of `inside` is not set.
  KILN_MEMBER void read(const T* from, unsigned inside) {
    _Pragma("unroll") for (int j = 0; j < kLine; ++j) {
      x[j].clear();
      if ((inside >> j & 1) != 0)
        x[j] = load_packed<D::x_align>(from + j * D::x_column, AllLanes{});
    }
  }
};

// A compiler would widen halves again in every branch that reads them.
KILN_INLINE float computed_here(float x) {
  unsigned bits = as_bits(x);
  asm volatile("" : "+r"(bits));
  return as_float(bits);
}

// Adds what line `at` of those that a thread reads gives to its sums.
template <class T>
KILN_INLINE void add_line(const DepthwiseLine<T>& line, int at, const float* weights,
                          vf32 (&sums)[D::group][D::strip]) {
  vf32 x[kLine];
  _Pragma("unroll") for (int j = 0; j < kLine; ++j) {
    x[j] = unpack(line.x[j]);
    KILN_EACH_LANE x[j].lane[l] = computed_here(x[j].lane[l]);
  }
  _Pragma("unroll") for (int i = 0; i < D::group; ++i) {
    const int from = at - i * D::stride_height, h = from / D::dilation_height;
    if (from < 0 || from % D::dilation_height != 0 || h >= D::window_height) continue;
    _Pragma("unroll") for (int v = 0; v < D::window_width; ++v) {
      const vf32 w = unpack(*reinterpret_cast<const Packed<float>*>(
          weights + (h * D::window_width + v) * kPitch));
      _Pragma("unroll") for (int s = 0; s < D::strip; ++s)
          KILN_EACH_LANE sums[i][s].lane[l] =
              fmaf(w.lane[l], x[s * D::stride_width + v * D::dilation_width].lane[l],
                   sums[i][s].lane[l]);
    }
  }
}

// Hands the block's results of so many images to finish(position, channel, sums of LANES neighbouring
// channels).
template <class X, class W, class Finish>
KILN_INLINE void convolve(const X* x, const W* w, int images, const Finish& finish) {
  const int block = static_cast<int>(block_index());
  float* weights = reinterpret_cast<float*>(shared_memory());
  hold_weights(w, block % D::channel_tiles * D::channels, weights);
  block_barrier();
  const DepthwisePlace place(block, images);
  if (!place.is_one) return;
  weights += thread_index() % kVectors * LANES;
  const int row = place.row * D::stride_height - D::above;
  const int column = place.column * D::stride_width - D::before;
  const X* from = x + static_cast<long>(place.image) * D::x_image + row * D::x_row +
                  column * D::x_column + place.channel;
  unsigned inside = 0;
  _Pragma("unroll") for (int j = 0; j < kLine; ++j)
      if (column + j >= 0 && column + j < D::in_width) inside |= 1u << j;
  vf32 sums[D::group][D::strip];
  _Pragma("unroll") for (auto& each : sums)
    _Pragma("unroll") for (vf32& sum : each) sum = splat<vf32>(0.0f);
  if constexpr (D::ahead) {
    DepthwiseLine<X> lines[kLines];
    _Pragma("unroll") for (int at = 0; at < kLines; ++at) {
      const bool is_row = row + at >= 0 && row + at < D::in_height;
      lines[at].read(from + at * D::x_row, is_row ? inside : 0);
    }
    _Pragma("unroll") for (int at = 0; at < kLines; ++at) add_line(lines[at], at, weights, sums);
  } else {
    // The text of one line: of all lines together a compiler would hold every weight in a register.
    _Pragma("unroll 1") for (int at = 0; at < kLines; ++at, from += D::x_row) {
      if (row + at < 0 || row + at >= D::in_height) continue;
      DepthwiseLine<X> line;
      line.read(from, inside);
      add_line(line, at, weights, sums);
    }
  }
  _Pragma("unroll") for (int i = 0; i < D::group; ++i)
      _Pragma("unroll") for (int s = 0; s < D::strip; ++s)
          if (place.row + i < D::height && place.column + s < D::width)
            finish((static_cast<index_t>(place.image) * D::height + place.row + i) * D::width + place.column + s,
                   place.channel, sums[i][s]);
}

}  // namespace
