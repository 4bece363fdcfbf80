// Operands of a matmul (matmul.cuh) whose sizes and strides are known at run time only. The
// generated source describes such an operand by a map, of which what is known is a constant:
//
//   stored, depth_inner, async, piece               as of a matmul's operand
//   from, lines, depth, line_stride, depth_stride   members, or static constants
namespace {

template <class Map>
struct Open : Map {};

// Brings a tile into shared memory as the other Loader does. (The parameter is named as a
// generated map: needed_text.h keeps a specialisation whose words occur further down.)
template <class AMap, class Tiling, int lines>
struct Loader<Open<AMap>, Tiling, lines> {
  using Operand = Open<AMap>;
  using Stored = typename AMap::stored;
  using Tile = TileOf<Operand, lines, Tiling::depth>;
  static constexpr int threads = Tiling::warp_rows * Tiling::warp_columns * 32;
  static constexpr int chunks = Tile::rows * Tile::chunks;
  static constexpr int turns = (chunks + threads - 1) / threads;
  Bits<16> waiting[AMap::async ? 1 : turns];

  KILN_INLINE bool is_mine(int place) { return chunks % threads == 0 || place < chunks; }
  // How many of the elements from (line, depth) on, along the tile's rows, exist.
  KILN_INLINE int existing(const Operand& operand, int line, int depth) {
    const int lines_left = operand.lines - line, depth_left = operand.depth - depth;
    if (lines_left <= 0 || depth_left <= 0) return 0;
    const int left = AMap::depth_inner ? depth_left : lines_left;
    return left < Tile::in_chunk ? left : Tile::in_chunk;
  }
  KILN_INLINE void load_pieces(const Stored* p, index_t stride, int count, Bits<16>& x) {
    constexpr int piece = AMap::piece, bytes = piece * static_cast<int>(sizeof(Stored));
    _Pragma("unroll") for (unsigned& word : x.word) word = 0;
    _Pragma("unroll") for (int i = 0; i < 16 / bytes; ++i) {
      if (i * piece >= count) continue;
      Bits<bytes> part;
      load_input(p + i * piece * stride, part);
      if constexpr (bytes < 4) {
        x.word[i * bytes / 4] |= part.word[0] << (i * bytes % 4 * 8);
      } else {
        _Pragma("unroll") for (int w = 0; w < bytes / 4; ++w) x.word[i * (bytes / 4) + w] =
            part.word[w];
      }
    }
  }

  KILN_MEMBER void fetch(const Operand& operand, int line, int depth, char* tile) {
    _Pragma("unroll") for (int turn = 0; turn < turns; ++turn) {
      const int place = thread_index() + turn * threads;
      const int row = place / Tile::chunks, chunk = place % Tile::chunks;
      const int inner = chunk * Tile::in_chunk;
      const int at_line = line + (AMap::depth_inner ? row : inner);
      const int at_depth = depth + (AMap::depth_inner ? inner : row);
      const int count = is_mine(place) ? existing(operand, at_line, at_depth) : 0;
      const Stored* from = operand.from;  // an address that exists
      if (count > 0)
        from += static_cast<index_t>(at_line) * operand.line_stride +
                static_cast<index_t>(at_depth) * operand.depth_stride;
      if constexpr (!AMap::async) {
        load_pieces(from, AMap::depth_inner ? operand.depth_stride : operand.line_stride, count,
                    waiting[turn]);
      } else if (is_mine(place)) {
        cp_async_16(tile + Tile::chunk_at(row, chunk), from,
                    count * static_cast<int>(sizeof(Stored)));
      }
    }
  }
  KILN_MEMBER void keep(char* tile) {
    if constexpr (!AMap::async) {
      _Pragma("unroll") for (int turn = 0; turn < turns; ++turn) {
        const int place = thread_index() + turn * threads;
        if (is_mine(place))
          store_words(tile + Tile::chunk_at(place / Tile::chunks, place % Tile::chunks),
                      waiting[turn].word);
      }
    }
  }
};

// As plain_sum() and staged_f32_sums() in matmul.cuh.
template <class A, class B>
KILN_INLINE float open_sum(const A& a, const B& b, int row, int column) {
  float sum = 0;
  const float* x = a.from + static_cast<index_t>(row) * a.line_stride;
  const float* y = b.from + static_cast<index_t>(column) * b.line_stride;
  _Pragma("unroll 1") for (int k = 0; k < a.depth; ++k) {
    sum += *x * *y;
    x += a.depth_stride;
    y += b.depth_stride;
  }
  return sum;
}
template <class Tiling, class A, class B>
KILN_INLINE Vec<float> staged_open_sums(char* shared, int tile_row, int tile_column, const A& a,
                                        const B& b, int row, int column) {
  const Vec<float> x = staged_sums<Tiling, float>(shared, tile_row, tile_column);
  bool all_numbers = true;
  KILN_EACH_LANE all_numbers &= x[l] == x[l];
  if (all_numbers) return x;
  float* at = reinterpret_cast<float*>(shared) + tile_row * Staging<Tiling>::pitch + tile_column;
  _Pragma("unroll 1") for (int l = 0; l < LANES; ++l)
    if (at[l] != at[l]) at[l] = open_sum(a, b, row, column + l);
  return staged_sums<Tiling, float>(shared, tile_row, tile_column);
}

}  // namespace
