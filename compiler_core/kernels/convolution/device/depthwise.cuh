// Convolutions of every channel with a window of its own, on the CUDA cores. A block has some rows of
// results of some channels of one image: what their windows reach of x lies in shared memory as f32,
// zeros around it; a thread adds up `group` rows of `strip` results side by side, so that a row of x
// that it has read serves all of them; sums go back through shared memory, so that threads side by
// side store what lies side by side.
//
// In front of it the generated source defines
//   struct Depthwise   channels, rows (of a block's results), row_tiles, channel_tiles; strip, group;
//                      threads; all_channels, in_height, in_width, height, width (of results);
//                      window_height, window_width, stride_*, dilation_*, above, before (zeros);
//                      vector: elements of x in one load, side by side along a row or, where
//                      channels_inner, along the channels; strides of x: image, channel, row, column;
//                      of the weight: w_channel, w_row, w_column
//                      held_rows, pitch, plane, lead: what of x lies in shared memory, of a channel:
//                      rows, floats of each, of all, and those before the first column of x
namespace {

using D = Depthwise;

constexpr int kGroups = (D::rows + D::group - 1) / D::group;  // of a channel's rows
constexpr int kStrips = (D::width + D::strip - 1) / D::strip;
constexpr int kWindow = D::window_height * D::window_width;
// What the results of `count` rows, or columns, reach.
KILN_CONSTANT int reach(int count, int stride, int window, int dilation) {
  return (count - 1) * stride + (window - 1) * dilation + 1;
}
constexpr int kResults = D::rows * D::width;    // of a channel

struct DepthwiseTile {
  int image, channel, row;  // the first of each
  KILN_MEMBER explicit DepthwiseTile(int block) {
    row = block % D::row_tiles * D::rows;
    channel = block / D::row_tiles % D::channel_tiles * D::channels;
    image = block / D::row_tiles / D::channel_tiles;
  }
};

// The block's shared memory: sums and x, which begin at multiples of 16 bytes; weights.
struct DepthwiseRoom {
  float *sums, *x, *weights;
  KILN_MEMBER explicit DepthwiseRoom(char* shared)
      : sums(reinterpret_cast<float*>(shared)),
        x(sums + (D::channels * kResults + 3) / 4 * 4),
        weights(x + (D::channels * D::plane + 3) / 4 * 4) {}
};

KILN_INLINE float widened(const float*, unsigned bits) { return as_float(bits); }
KILN_INLINE float widened(const bf16*, unsigned bits) { return as_float(bits << 16); }
KILN_INLINE float widened(const f16*, unsigned bits) {
  return f16_to_f32(static_cast<unsigned short>(bits));
}
template <class T>
KILN_INLINE float held_value(const Bits<D::vector * sizeof(T)>& x, int i) {
  return widened(static_cast<const T*>(nullptr),
                 sizeof(T) == 4 ? x.word[i] : x.word[i / 2] >> (i % 2 * 16) & 0xffff);
}

template <class T>
KILN_INLINE void hold_x(const T* from, const DepthwiseTile& tile, float* x) {
  constexpr int along = D::channels_inner ? D::in_width : D::in_width / D::vector;
  constexpr int channels = D::channels_inner ? D::channels / D::vector : D::channels;
  from += static_cast<long>(tile.image) * D::x_image;
  _Pragma("unroll 4") for (int i = thread_index(); i < channels * D::held_rows * along;
                           i += D::threads) {
    // Neighbouring threads read what lies side by side.
    const int first = D::channels_inner ? i % channels * D::vector : i / along / D::held_rows;
    const int place = D::channels_inner ? i / channels : i % (along * D::held_rows);
    const int held = place / along, row = tile.row * D::stride_height - D::above + held;
    const int column = place % along * (D::channels_inner ? 1 : D::vector);
    if (row < 0 || row >= D::in_height || tile.channel + first >= D::all_channels) continue;
    Bits<D::vector * sizeof(T)> bits;
    load_input(from + static_cast<long>(tile.channel + first) * D::x_channel +
                   static_cast<long>(row) * D::x_row + static_cast<long>(column) * D::x_column,
               bits);
    float* to = x + first * D::plane + held * D::pitch + column + D::lead;
    if constexpr (!D::channels_inner && D::vector % 4 == 0) {  // columns come in fours, and fit
      _Pragma("unroll") for (int v = 0; v < D::vector; v += 4) {
        Bits<16> four;
        _Pragma("unroll") for (int j = 0; j < 4; ++j) four.word[j] =
            as_bits(held_value<T>(bits, v + j));
        *reinterpret_cast<Bits<16>*>(to + v) = four;
      }
    } else {
      _Pragma("unroll") for (int v = 0; v < D::vector; ++v)
          to[D::channels_inner ? v * D::plane : v] = held_value<T>(bits, v);
    }
  }
}

template <class T>
KILN_INLINE void hold_weights(const T* from, const DepthwiseTile& tile, float* weights) {
  _Pragma("unroll 1") for (int i = thread_index(); i < D::channels * kWindow; i += D::threads) {
    const int channel = tile.channel + i / kWindow, place = i % kWindow;
    if (channel >= D::all_channels) continue;
    Bits<sizeof(T)> bits;
    load_input(from + static_cast<long>(channel) * D::w_channel +
                   place / D::window_width * D::w_row + place % D::window_width * D::w_column,
               bits);
    weights[i] = widened(from, bits.word[0]);
  }
}

// The strip whose first result's window begins at `x`.
KILN_INLINE void sum_strip(const float* x, const float* weights,
                           float (&sums)[D::group][D::strip]) {
  constexpr int wide = reach(D::strip, D::stride_width, D::window_width, D::dilation_width);
  float w[kWindow];
  _Pragma("unroll") for (int i = 0; i < kWindow; ++i) w[i] = weights[i];
  _Pragma("unroll") for (int i = 0; i < D::group; ++i)
      _Pragma("unroll") for (int s = 0; s < D::strip; ++s) sums[i][s] = 0.0f;
  _Pragma("unroll") for (int row = 0; row < reach(D::group, D::stride_height, D::window_height,
                                                  D::dilation_height); ++row) {
    float line[wide];
    _Pragma("unroll") for (int j = 0; j < wide; ++j) line[j] = x[row * D::pitch + j];
    _Pragma("unroll") for (int i = 0; i < D::group; ++i) {
      const int from = row - i * D::stride_height, h = from / D::dilation_height;
      if (from < 0 || from % D::dilation_height != 0 || h >= D::window_height) continue;
      _Pragma("unroll") for (int v = 0; v < D::window_width; ++v)
          _Pragma("unroll") for (int s = 0; s < D::strip; ++s) sums[i][s] =
              fmaf(w[h * D::window_width + v], line[s * D::stride_width + v * D::dilation_width],
                    sums[i][s]);
    }
  }
}

// Hands the block's results to finish(channel, position, LANES neighbouring sums).
template <class X, class W, class Finish>
KILN_INLINE void convolve(const X* x, const W* w, const DepthwiseTile& tile, const Finish& finish) {
  const DepthwiseRoom room(shared_memory());
  const Bits<16> zeros = {};
  _Pragma("unroll 4") for (int i = thread_index(); i < (D::channels * D::plane + 3) / 4;
                           i += D::threads)
      reinterpret_cast<Bits<16>*>(room.x)[i] = zeros;
  block_barrier();
  hold_x(x, tile, room.x);
  hold_weights(w, tile, room.weights);
  block_barrier();
  _Pragma("unroll 1") for (int i = thread_index(); i < D::channels * kGroups * kStrips;
                           i += D::threads) {
    const int channel = i / (kGroups * kStrips), group = i / kStrips % kGroups * D::group;
    const int column = i % kStrips * D::strip;
    float sums[D::group][D::strip];
    sum_strip(room.x + channel * D::plane + group * D::stride_height * D::pitch +
                  column * D::stride_width + D::lead - D::before,
              room.weights + channel * kWindow, sums);
    float* to = room.sums + channel * kResults + group * D::width + column;
    _Pragma("unroll") for (int j = 0; j < D::group; ++j)
        _Pragma("unroll") for (int s = 0; s < D::strip; ++s)
            if (group + j < D::rows && column + s < D::width) to[j * D::width + s] = sums[j][s];
  }
  block_barrier();
  constexpr int vectors = kResults / LANES;
  const int live = (D::height - tile.row < D::rows ? D::height - tile.row : D::rows) * D::width;
  _Pragma("unroll 2") for (int i = thread_index(); i < D::channels * vectors; i += D::threads) {
    const int channel = i / vectors, at = i % vectors * LANES;
    if (tile.channel + channel >= D::all_channels || at >= live) continue;
    finish(tile.channel + channel, tile.row * D::width + at,
           unpack(*reinterpret_cast<const Packed<float>*>(room.sums + channel * kResults + at)));
  }
}

}  // namespace
