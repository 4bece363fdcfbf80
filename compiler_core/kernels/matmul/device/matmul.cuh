// A block's tile of a batched matmul: its operands come through shared memory in steps of
// Tiling::depth, Tiling::stages of them under way at once; its sums end in shared memory, from
// where the kernel's epilogue takes them in rows.
//
// Which barrier protects what. Step s lies in stage s % stages. At the head of step s every thread
// has waited for its own copies of step s and then meets the others, so that after the barrier
//   - step s lies in shared memory, whoever brought it;
//   - nobody reads step s - 1 any more, whose stage is the one that the copies begun now, of step
//     s + stages - 1, are written to.
namespace {

// Brings one operand's tile into shared memory. What of a chunk (16 bytes along the axis that is
// contiguous) lies outside the operand becomes zeros. Operand: see the generated struct.
template <class Operand, class Tiling, int lines>
struct Loader {
  using Stored = typename Operand::stored;
  using Tile = TileOf<Operand, lines, Tiling::depth>;
  static constexpr int threads = Tiling::warp_rows * Tiling::warp_columns * 32;
  static constexpr int chunks = Tile::rows * Tile::chunks;
  static constexpr int turns = (chunks + threads - 1) / threads;
  static constexpr index_t inner_stride =
      Operand::depth_inner ? Operand::depth_stride : Operand::line_stride;
  Bits<16> waiting[Operand::async ? 1 : turns];

  // Whether this thread has a chunk in a turn, and where in the tile.
  struct Place {
    bool mine;
    int row, chunk;
    KILN_MEMBER explicit Place(int turn) {
      const int i = thread_index() + turn * threads;
      mine = chunks % threads == 0 || i < chunks;
      row = i / Tile::chunks;
      chunk = i % Tile::chunks;
    }
  };
  // How many of the elements from (line, depth) on, along the tile's rows, exist.
  KILN_INLINE int existing(int line, int depth) {
    constexpr bool whole_lines = Operand::lines % lines == 0;
    constexpr bool whole_depth = Operand::depth % Tiling::depth == 0;
    const int lines_left = whole_lines ? Tile::in_chunk : Operand::lines - line;
    const int depth_left = whole_depth ? Tile::in_chunk : Operand::depth - depth;
    if (lines_left <= 0 || depth_left <= 0) return 0;
    const int left = Operand::depth_inner ? depth_left : lines_left;
    return left < Tile::in_chunk ? left : Tile::in_chunk;
  }
  // Elements one by one, or in aligned pieces of which each exists or does not.
  KILN_INLINE void load_pieces(const Stored* p, int count, Bits<16>& x) {
    constexpr int bytes = Operand::piece * sizeof(Stored);
    _Pragma("unroll") for (unsigned& word : x.word) word = 0;
    _Pragma("unroll") for (int i = 0; i < 16 / bytes; ++i) {
      if (i * Operand::piece >= count) continue;
      Bits<bytes> part;
      load_input(p + i * Operand::piece * inner_stride, part);
      if constexpr (bytes < 4) {
        x.word[i * bytes / 4] |= part.word[0] << (i * bytes % 4 * 8);
      } else {
        _Pragma("unroll") for (int w = 0; w < bytes / 4; ++w) x.word[i * (bytes / 4) + w] =
            part.word[w];
      }
    }
  }

  // Begins to bring the tile at (line, depth) of the operand.
  KILN_MEMBER void fetch(const Stored* operand, int line, int depth, char* tile) {
    _Pragma("unroll") for (int turn = 0; turn < turns; ++turn) {
      const Place place(turn);
      const int inner = place.chunk * Tile::in_chunk;
      const int at_line = line + (Operand::depth_inner ? place.row : inner);
      const int at_depth = depth + (Operand::depth_inner ? inner : place.row);
      const int count = place.mine ? existing(at_line, at_depth) : 0;
      const Stored* from = operand;  // an address that exists
      if (count > 0)
        from += static_cast<index_t>(at_line) * Operand::line_stride +
                static_cast<index_t>(at_depth) * Operand::depth_stride;
      if constexpr (!Operand::async) {
        load_pieces(from, count, waiting[turn]);
      } else if (place.mine) {
        cp_async_16(tile + Tile::chunk_at(place.row, place.chunk), from,
                    count * static_cast<int>(sizeof(Stored)));
      }
    }
  }
  // Stores what fetch() has left in registers.
  KILN_MEMBER void keep(char* tile) {
    if constexpr (!Operand::async) {
      _Pragma("unroll") for (int turn = 0; turn < turns; ++turn) {
        const Place place(turn);
        if (!place.mine) continue;
        store_words(tile + Tile::chunk_at(place.row, place.chunk), waiting[turn].word);
      }
    }
  }
};

// Rows of staged sums lie so far apart that eight of them begin in different banks.
template <class Tiling>
struct Staging { static constexpr int pitch = Tiling::columns + 8; };

// The depth of an operand, as its loader fetches it.
template <class Operand>
KILN_INLINE int depth_of(const typename Operand::stored*) {
  return Operand::depth;
}
template <class Operand>
KILN_INLINE int depth_of(const Operand& operand) {
  return operand.depth;
}

// The sums of steps [begin, end) for the tile at (row, column) of the product of a and b, staged at
// the start of `shared`. Every thread of the block calls it; the staged sums are whole when it
// returns. a and b are what their loaders fetch from.
template <class Sums, class A, class B, class Tiling, class FromA, class FromB>
KILN_INLINE void multiply_tile(const FromA& a, const FromB& b, int row, int column, int begin,
                               int end, char* shared) {
  constexpr int stages = Tiling::stages, depth = Tiling::depth;
  Loader<A, Tiling, Tiling::rows> of_a;
  Loader<B, Tiling, Tiling::columns> of_b;
  constexpr int a_bytes = Sums::TileA::bytes, stage_bytes = a_bytes + Sums::TileB::bytes;
  const int last = (depth_of<A>(a) < end * depth ? depth_of<A>(a) : end * depth) - 1;
  Sums sums;
  sums.clear();
  _Pragma("unroll 1") for (int step = 0; step < stages - 1; ++step) {
    char* tile = shared + step * stage_bytes;
    if (begin + step < end) {
      of_a.fetch(a, row, (begin + step) * depth, tile);
      of_b.fetch(b, column, (begin + step) * depth, tile + a_bytes);
      of_a.keep(tile);
      of_b.keep(tile + a_bytes);
    }
    cp_async_commit();
  }
  int stage = 0;
  char* next_tile = shared + (stages - 1) * stage_bytes;
  _Pragma("unroll 1") for (int step = begin; step < end; ++step) {
    cp_async_wait<stages - 2>();
    block_barrier();
    const int next = step + stages - 1;
    if (next < end) {
      of_a.fetch(a, row, next * depth, next_tile);
      of_b.fetch(b, column, next * depth, next_tile + a_bytes);
    }
    cp_async_commit();
    char* tile = shared + stage * stage_bytes;
    sums.multiply(tile, tile + a_bytes, last - step * depth);
    if (next < end) {
      of_a.keep(next_tile);
      of_b.keep(next_tile + a_bytes);
    }
    next_tile = tile;
    stage = stage + 1 == stages ? 0 : stage + 1;
  }
  cp_async_wait<0>();
  block_barrier();  // nobody reads the operands any more
  sums.stage(reinterpret_cast<typename Sums::value*>(shared), Staging<Tiling>::pitch);
  block_barrier();
}

// LANES neighbouring staged sums.
template <class Tiling, class Value>
KILN_INLINE Vec<Value> staged_sums(const char* shared, int row, int column) {
  const Value* at = reinterpret_cast<const Value*>(shared) + row * Staging<Tiling>::pitch + column;
  return unpack(*reinterpret_cast<const Packed<Value>*>(at));
}

// The same of block `rank` of the cluster.
template <class Tiling, class Value>
KILN_INLINE Vec<Value> sums_of_block(const char* shared, int rank, int row, int column) {
  const Value* at = reinterpret_cast<const Value*>(shared) + row * Staging<Tiling>::pitch + column;
  if constexpr (LANES * sizeof(Value) % 16 == 0) {
    Packed<Value> sums;
    _Pragma("unroll") for (int i = 0; i < LANES * static_cast<int>(sizeof(Value)) / 16; ++i)
        cluster_load_16(reinterpret_cast<const char*>(at) + 16 * i, rank, sums.word + 4 * i);
    return unpack(sums);
  } else {
    Vec<Value> sums;
    KILN_EACH_LANE sums[l] = cluster_load(at + l, rank);
    return sums;
  }
}

// Tile number `tile` of rows x columns of them. Neighbouring numbers lie in `group` rows, so that
// blocks that run at the same time share what they read.
struct TilePlace {
  int row, column;
  KILN_MEMBER TilePlace(int tile, int rows, int columns, int group) {
    const int first = tile / (group * columns) * group, within = tile % (group * columns);
    const int high = rows - first < group ? rows - first : group;
    row = first + within % high;
    column = within / high;
  }
};

// ---- The f32 sum of one element, for one that the split into tf32 numbers has made NaN.
template <class A, class B>
KILN_INLINE float plain_sum(const float* a, const float* b, int row, int column) {
  float sum = 0;
  a += static_cast<index_t>(row) * A::line_stride;
  b += static_cast<index_t>(column) * B::line_stride;
  _Pragma("unroll 1") for (int k = 0; k < A::depth; ++k) {
    sum += *a * *b;
    a += A::depth_stride;
    b += B::depth_stride;
  }
  return sum;
}

// Staged sums of the product of a and b, of which those from (row, column) on are NaN no more than
// they should be.
template <class Tiling, class A, class B>
KILN_INLINE Vec<float> staged_f32_sums(char* shared, int tile_row, int tile_column, const float* a,
                                       const float* b, int row, int column) {
  const Vec<float> x = staged_sums<Tiling, float>(shared, tile_row, tile_column);
  bool all_numbers = true;
  KILN_EACH_LANE all_numbers &= x[l] == x[l];
  if (all_numbers) return x;
  float* at = reinterpret_cast<float*>(shared) + tile_row * Staging<Tiling>::pitch + tile_column;
  _Pragma("unroll 1") for (int l = 0; l < LANES; ++l)
    if (at[l] != at[l]) at[l] = plain_sum<A, B>(a, b, row, column + l);
  return staged_sums<Tiling, float>(shared, tile_row, tile_column);
}

}  // namespace
