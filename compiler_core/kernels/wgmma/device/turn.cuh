// Lays out operands for wgmma_gather.cuh: images as [image, position, channel], where positions are
// those that a convolution's windows reach, with the zeros around an image (or a matrix's lines, and
// channels its depth); weights as [row, window, channel]. Channels come in whole 64, those that do not
// exist as zeros. Blocks of kTurnThreads.
//
// In front of it the generated source defines
//   struct X   channels, all_channels, positions; channel_stride, image_stride; positions_inner:
//              whether positions lie nearer to one another than channels; locate(position, at):
//              whether it is in the image. Any number of such types, of any name.
//              turn_planes() and turn_border() want: vector; plane (positions of the image), row (of
//              them); all_width; height, width: of the part that is reached, `above` rows and
//              `before` columns of zeros in front of it
//   struct W   rows, all_rows, window, channels, all_channels; at(row, place, channel), and where it
//              goes: to(row, place, channel), of 8 channels
//              turn_weight_lines() wants: parts, of 64 channels of a row, that a block turns; weights as
//              [row][channel][place], side by side
namespace {

constexpr int kTurnThreads = 256, kTurnPitch = 66;

// 64 positions of 64 channels, by way of shared memory.
template <class X, class T>
KILN_INLINE void turn_images(const T* from, T* to, int tile) {
  constexpr int across = X::all_channels / 64, down = (X::positions + 63) / 64;
  unsigned short* staged = reinterpret_cast<unsigned short*>(shared_memory());
  const int channel0 = tile % across * 64, position0 = tile / across % down * 64;
  const int image = tile / across / down;
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

// The same of images whose planes have all positions side by side, X::vector of them (2, 4, 8) in one
// load; zeros around them are turn_border()'s.
template <class X, class T>
KILN_INLINE void turn_planes(const T* from, T* to, int tile) {
  constexpr int vector = X::vector, vectors = 64 / vector, pitch = kTurnPitch / 2;  // words
  constexpr int across = X::all_channels / 64, down = (X::plane + 63) / 64;
  unsigned* staged = reinterpret_cast<unsigned*>(shared_memory());
  const int channel0 = tile % across * 64, position0 = tile / across % down * 64;
  const int image = tile / across / down;
  from += static_cast<long>(image) * X::image_stride;
  Bits<vector * 2> x[16 / vector];
  _Pragma("unroll") for (int i = 0; i < 16 / vector; ++i) {
    const int e = thread_index() + i * kTurnThreads;
    const int channel = channel0 + e / vectors, position = position0 + e % vectors * vector;
    _Pragma("unroll") for (unsigned& word : x[i].word) word = 0;
    if (channel < X::channels && position < X::plane)
      load_input(from + channel * X::channel_stride + position, x[i]);
  }
  _Pragma("unroll") for (int i = 0; i < 16 / vector; ++i) {
    const int e = thread_index() + i * kTurnThreads;
    _Pragma("unroll") for (int w = 0; w < vector / 2; ++w)
        staged[e / vectors * pitch + e % vectors * (vector / 2) + w] = x[i].word[w];
  }
  block_barrier();
  // Eight channels of two positions a thread.
  const int piece = thread_index() % 8, pair = thread_index() / 8;
  Bits<16> y[2];
  _Pragma("unroll") for (int w = 0; w < 4; ++w) {
    const unsigned a = staged[(piece * 8 + 2 * w) * pitch + pair];
    const unsigned b = staged[(piece * 8 + 2 * w + 1) * pitch + pair];
    y[0].word[w] = (a & 0xffff) | b << 16;
    y[1].word[w] = a >> 16 | (b & 0xffff0000u);
  }
  _Pragma("unroll") for (int i = 0; i < 2; ++i) {
    const int position = position0 + pair * 2 + i, h = position / X::row, w = position % X::row;
    if (h >= X::height || w >= X::width) continue;
    store_output(to + (static_cast<long>(image) * X::positions + (h + X::above) * X::all_width + w +
                       X::before) *
                          X::all_channels +
                     channel0 + piece * 8,
                 y[i]);
  }
}
// Eight channels a thread of the positions around each of `images`.
template <class X, class T>
KILN_INLINE void turn_border(T* to, int block, int images) {
  constexpr int pieces = X::all_channels / 8, beside = X::all_width - X::width;
  constexpr int over = X::above * X::all_width;
  constexpr int under = X::positions - (X::above + X::height) * X::all_width;
  constexpr int border = over + under + X::height * beside;
  const int i = block * kTurnThreads + thread_index();
  const int piece = i % pieces, image = i / pieces / border;
  if (image >= images) return;
  int position = i / pieces % border;
  if (position >= over + under) {
    const int at = position - over - under, w = at % beside;
    position = over + at / beside * X::all_width + (w < X::before ? w : w + X::width);
  } else if (position >= over) {
    position += X::height * X::all_width;
  }
  Bits<16> zeros;
  _Pragma("unroll") for (unsigned& word : zeros.word) word = 0;
  store_output(to + (static_cast<long>(image) * X::positions + position) * X::all_channels + piece * 8,
               zeros);
}

// Eight channels a thread.
template <class W, class T>
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
  store_output(to + W::to(row, place, piece * 8), y);
}

// The same of weights that lie row by row, [channel][place]: loaded as they lie, by way of shared memory.
template <class W, class T>
KILN_INLINE void turn_weight_lines(const T* from, T* to, int block) {
  constexpr int across = W::all_channels / 64, elements = 64 * W::window;  // of a part
  unsigned short* staged = reinterpret_cast<unsigned short*>(shared_memory());
  _Pragma("unroll 2") for (int i = thread_index(); i < W::parts * elements / 8; i += kTurnThreads) {
    const int part = block * W::parts + i / (elements / 8), row = part / across;
    const int at = part % across * elements + i % (elements / 8) * 8;
    Bits<16> x;
    _Pragma("unroll") for (unsigned& word : x.word) word = 0;
    if (row < W::rows && at < W::channels * W::window) load_input(from + W::at(row, 0, 0) + at, x);
    *reinterpret_cast<Bits<16>*>(staged + i * 8) = x;
  }
  block_barrier();
  _Pragma("unroll 2") for (int i = thread_index(); i < W::parts * W::window * 8; i += kTurnThreads) {
    const int piece = i % 8, place = i / 8 % W::window, number = i / 8 / W::window;
    const int part = block * W::parts + number, row = part / across;
    if (row >= W::all_rows) continue;
    const unsigned short* column = staged + number * elements + piece * 8 * W::window + place;
    Bits<16> y;
    _Pragma("unroll") for (int w = 0; w < 4; ++w) y.word[w] =
        column[2 * w * W::window] | static_cast<unsigned>(column[(2 * w + 1) * W::window]) << 16;
    store_output(to + W::to(row, place, part % across * 64 + piece * 8), y);
  }
}

// Counters of the product behind, by one block.
KILN_INLINE void clear_counters(unsigned* counters, int count) {
  for (int i = thread_index(); i < count; i += kTurnThreads) counters[i] = 0;
}

}  // namespace
