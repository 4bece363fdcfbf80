// Lays out a convolution's operands for wgmma_gather.cuh: images as [image, position, channel], where
// positions are those that windows reach, with the zeros around an image; weights as [row, window,
// channel]. Channels come in whole 64, those that do not exist as zeros. Blocks of kTurnThreads.
//
// In front of it the generated source defines
//   struct X   channels, all_channels, positions; channel_stride, image_stride; positions_inner:
//              whether positions lie nearer to one another than channels; locate(position, at):
//              whether it is in the image
//   struct W   rows, all_rows, window, channels, all_channels; at(row, place, channel)
namespace {

constexpr int kTurnThreads = 256, kTurnPitch = 66;
constexpr int kImageTiles = (X::positions + 63) / 64, kChannelTiles = X::all_channels / 64;

// 64 positions of 64 channels, by way of shared memory.
template <class T>
KILN_INLINE void turn_images(const T* from, T* to, int tile) {
  unsigned short* staged = reinterpret_cast<unsigned short*>(shared_memory());
  const int channel0 = tile % kChannelTiles * 64;
  const int position0 = tile / kChannelTiles % kImageTiles * 64;
  const int image = tile / kChannelTiles / kImageTiles;
  from += static_cast<long>(image) * X::image_stride;
  Bits<2> x[16];
  _Pragma("unroll") for (int i = 0; i < 16; ++i) {
    const int e = thread_index() + i * kTurnThreads;
    const int channel = channel0 + (X::positions_inner ? e / 64 : e % 64);
    const int position = position0 + (X::positions_inner ? e % 64 : e / 64);
    x[i].word[0] = 0;
    long at;
    if (channel < X::channels && position < X::positions && X::locate(position, at))
      load_input(from + at + channel * X::channel_stride, x[i]);
  }
  _Pragma("unroll") for (int i = 0; i < 16; ++i) {
    const int e = thread_index() + i * kTurnThreads;
    const int channel = X::positions_inner ? e / 64 : e % 64;
    const int position = X::positions_inner ? e % 64 : e / 64;
    staged[channel * kTurnPitch + position] = static_cast<unsigned short>(x[i].word[0]);
  }
  block_barrier();
  _Pragma("unroll") for (int i = 0; i < 2; ++i) {
    const int e = thread_index() + i * kTurnThreads, piece = e % 8, position = position0 + e / 8;
    if (position >= X::positions) continue;
    const unsigned short* column = staged + piece * 8 * kTurnPitch + e / 8;
    Bits<16> y;
    _Pragma("unroll") for (int w = 0; w < 4; ++w) y.word[w] =
        column[2 * w * kTurnPitch] | static_cast<unsigned>(column[(2 * w + 1) * kTurnPitch]) << 16;
    store_output(to + (static_cast<long>(image) * X::positions + position) * X::all_channels +
                     channel0 + piece * 8,
                 y);
  }
}

// Eight channels a thread.
template <class T>
KILN_INLINE void turn_weights(const T* from, T* to, int block) {
  constexpr int pieces = W::all_channels / 8;
  const int i = block * kTurnThreads + thread_index();
  const int piece = i % pieces, place = i / pieces % W::window, row = i / pieces / W::window;
  if (row >= W::all_rows) return;
  Bits<16> y;
  _Pragma("unroll") for (int j = 0; j < 8; ++j) {
    const int channel = piece * 8 + j;
    Bits<2> x;
    x.word[0] = 0;
    if (row < W::rows && channel < W::channels) load_input(from + W::at(row, place, channel), x);
    y.word[j / 2] = j % 2 == 0 ? x.word[0] : y.word[j / 2] | x.word[0] << 16;
  }
  store_output(to + static_cast<long>(i) * 8, y);
}

}  // namespace
