// Convolution as a batched matmul (matmul.cuh) whose operands are found element by element: the
// windows, and a weight that is no matrix. The generated source describes such an operand by a map
//
//   stored, lines, depth, depth_inner   as of a matmul's operand
//   bool locate(line, depth, at)        where an element lies; false: it is a padding zero
//
// Where sizes are known at run time only, the operand is a map itself and not a pointer: it has
// `from`, the pointer, and lines and locate() are a value's.
namespace {

template <class Map>
struct Gathered : Map { static constexpr bool async = false; };

template <class T>
KILN_INLINE const T* begin_of(const T* operand) {
  return operand;
}
template <class Map>
KILN_INLINE const typename Map::stored* begin_of(const Gathered<Map>& operand) {
  return operand.from;
}
template <class Map>
KILN_INLINE int lines_of(const typename Map::stored*) {
  return Map::lines;
}
template <class Map>
KILN_INLINE int lines_of(const Map& operand) {
  return operand.lines;
}
template <class Map>
KILN_INLINE bool locate_in(const typename Map::stored*, int line, int depth, index_t& at) {
  return Map::locate(line, depth, at);
}
template <class Map>
KILN_INLINE bool locate_in(const Map& operand, int line, int depth, index_t& at) {
  return operand.locate(line, depth, at);
}

// Brings a tile into shared memory, every element on its own: a chunk is put together in registers
// and stored at once, one after another, since addresses of more would not fit the registers. The
// stage is free when fetch() is called (matmul.cuh). (The parameter is named as the generated map:
// needed_text.h keeps a specialisation whose words occur further down.)
template <class WindowMap, class Tiling, int lines>
struct Loader<Gathered<WindowMap>, Tiling, lines> {
  using Stored = typename WindowMap::stored;
  using Tile = TileOf<Gathered<WindowMap>, lines, Tiling::depth>;
  static constexpr int threads = Tiling::warp_rows * Tiling::warp_columns * 32;
  static constexpr int chunks = Tile::rows * Tile::chunks;

  template <class Operand>
  KILN_INLINE void load_one(const Operand& operand, int line, int depth, int i, Bits<16>& x) {
    index_t at = 0;
    if (line >= lines_of<WindowMap>(operand) || depth >= WindowMap::depth ||
        !locate_in<WindowMap>(operand, line, depth, at))
      return;
    constexpr int bytes = sizeof(Stored);
    Bits<bytes> part;
    load_input(begin_of(operand) + at, part);
    if constexpr (bytes < 4) {
      x.word[i * bytes / 4] |= part.word[0] << (i * bytes % 4 * 8);
    } else {
      _Pragma("unroll") for (int w = 0; w < bytes / 4; ++w) x.word[i * (bytes / 4) + w] =
          part.word[w];
    }
  }
  template <class Operand>
  KILN_MEMBER void fetch(const Operand& operand, int line, int depth, char* tile) {
    _Pragma("unroll 1") for (int place = thread_index(); place < chunks; place += threads) {
      const int row = place / Tile::chunks, chunk = place % Tile::chunks;
      const int inner = chunk * Tile::in_chunk;
      Bits<16> x;
      _Pragma("unroll") for (unsigned& word : x.word) word = 0;
      _Pragma("unroll") for (int i = 0; i < Tile::in_chunk; ++i)
        load_one(operand, line + (WindowMap::depth_inner ? row : inner + i),
                 depth + (WindowMap::depth_inner ? inner + i : row), i, x);
      store_words(tile + Tile::chunk_at(row, chunk), x.word);
    }
  }
  KILN_MEMBER void keep(char*) {}
};

// As plain_sum() and staged_f32_sums() in matmul.cuh.
template <class A, class B, class FromB>
KILN_INLINE float gathered_sum(const float* a, const FromB& b, int row, int column) {
  float sum = 0;
  _Pragma("unroll 1") for (int k = 0; k < A::depth; ++k) {
    index_t at_a = 0, at_b = 0;
    if (A::locate(row, k, at_a) && locate_in<B>(b, column, k, at_b))
      sum += a[at_a] * begin_of(b)[at_b];
  }
  return sum;
}
template <class Tiling, class A, class B, class FromB>
KILN_INLINE Vec<float> staged_gathered_sums(char* shared, int tile_row, int tile_column,
                                            const float* a, const FromB& b, int row, int column) {
  const Vec<float> x = staged_sums<Tiling, float>(shared, tile_row, tile_column);
  bool all_numbers = true;
  KILN_EACH_LANE all_numbers &= x[l] == x[l];
  if (all_numbers) return x;
  float* at = reinterpret_cast<float*>(shared) + tile_row * Staging<Tiling>::pitch + tile_column;
  _Pragma("unroll 1") for (int l = 0; l < LANES; ++l)
    if (at[l] != at[l]) at[l] = gathered_sum<A, B>(a, b, row, column + l);
  return staged_sums<Tiling, float>(shared, tile_row, tile_column);
}

}  // namespace
