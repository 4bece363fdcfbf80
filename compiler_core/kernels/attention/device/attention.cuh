// Attention in one pass: a block has some query rows of one batch, a warp 16 of them, and walks the
// keys a tile at a time, the next tile on its way into shared memory meanwhile. Scores stay in the
// registers that the tensor cores leave them in, are weighed there (online softmax, as in
// cpu/attention.h), and are the first operand of the second product as they lie.
//
// The generated source says how Query, Key and Value lie: `stored`, token_stride, stride, `async`
// (rows in aligned chunks of 16 bytes), `addressed` (chunks lie where a function of token and column
// says), `computed` (they lie nowhere: a Computed makes a chunk, which LANES neighbours of a head are;
// for attention of few rows alone); struct Problem (rows, keys, depth, columns; what
// attention_seen.cuh wants, which stands in front of this file too; normalised, guarded; has_log_sums:
// store_log_sum(log_sum, row) wants them; whole_rows, whole_keys: tiles end where these do; score_lanes:
// neighbours whose scores are computed at once; a query, key and value of those); struct Tiling (warps,
// row_warps of them that have rows of their own, keys, stages, depth and columns rounded up to whole
// chunks). What is known at run time only is a member, all else a constant.
//
// Which barrier protects what. Tile t lies in stage t % stages. At the head of step t every thread
// has waited for its own copies of tile t and then meets the others, so that tile t lies in shared
// memory; at the end of the step they meet again, and its stage may be written.
namespace {

template <class Operand, int rows, int width>
using TokenTile = SharedTile<typename Operand::stored, rows, width, 1>;

// The chunks of a tile that a thread of so many brings, by turns.
template <class Tile, int rows, int threads>
struct ChunksOfThread {
  static constexpr int chunks = rows * Tile::chunks;
  static constexpr int turns = (chunks + threads - 1) / threads;
  static constexpr bool in_step = threads % Tile::chunks == 0;  // they lie below each other
  int row, chunk;
  bool exists;
  KILN_MEMBER ChunksOfThread(int thread, int turn) {
    const int i = thread + turn * threads;
    exists = chunks % threads == 0 || i < chunks;
    row = in_step ? thread / Tile::chunks + turn * (threads / Tile::chunks) : i / Tile::chunks;
    chunk = in_step ? thread % Tile::chunks : i % Tile::chunks;
  }
};

// Brings tokens [first, first + rows) into a tile of rows. What is past `count` tokens or `size`
// elements becomes zeros; `whole`: no tile goes past the last token. Copies are unrolled, so that all
// of a thread's are one address and constants: counting them out again takes a quarter of a step's
// instructions. `thread` of so many `threads` that share the work.
template <class Operand, int rows, int width, int size, bool whole, int threads, class From>
KILN_INLINE void fetch_tokens(const Operand& layout, const From& operand, int first, int count,
                              char* tile, int thread) {
  using Stored = typename Operand::stored;
  using Tile = TokenTile<Operand, rows, width>;
  using Chunks = ChunksOfThread<Tile, rows, threads>;
  constexpr int at_once = Operand::async && Chunks::turns <= 8 ? Chunks::turns : 1;
  _Pragma("unroll at_once") for (int turn = 0; turn < Chunks::turns; ++turn) {
    const Chunks at(thread, turn);
    if (!at.exists) break;
    const int left = whole || first + at.row < count ? size - at.chunk * Tile::in_chunk : 0;
    const int exist = left < 0 ? 0 : left < Tile::in_chunk ? left : Tile::in_chunk;
    const Stored* from;  // an address that exists, where none of the elements does
    if constexpr (Operand::addressed) {
      from = operand(smaller(first + at.row, count - 1), exist > 0 ? at.chunk * Tile::in_chunk : 0);
    } else {
      from = operand;
      if (exist > 0)
        from += static_cast<index_t>(first + at.row) * layout.token_stride +
                static_cast<index_t>(at.chunk * Tile::in_chunk) * layout.stride;
    }
    if constexpr (Operand::async) {
      cp_async_16(tile + Tile::chunk_at(at.row, at.chunk), from,
                  exist * static_cast<int>(sizeof(Stored)));
    } else {
      unsigned word[4] = {0, 0, 0, 0};
      _Pragma("unroll") for (int e = 0; e < Tile::in_chunk; ++e) {
        if (e >= exist) continue;
        Bits<sizeof(Stored)> x;
        load_input(from + e * layout.stride, x);
        const int byte = e * static_cast<int>(sizeof(Stored));
        word[byte / 4] |= x.word[0] << (byte % 4 * 8);
      }
      store_words(tile + Tile::chunk_at(at.row, at.chunk), word);
    }
  }
}

// How a chunk is computed: read(token, column) loads the widest thing that it is made of, and of(what was
// loaded, token, column) gives its values.
template <class Read, class Of>
struct Computed {
  Read read;
  Of of;
};
template <class Read, class Of>
Computed(Read, Of) -> Computed<Read, Of>;

// The type that Computed::read() gives; of an operand that lies in memory, any.
template <class Operand, class From>
KILN_INLINE auto read_of(const From& from) {
  if constexpr (Operand::computed)
    return from.read(0, 0);
  else
    return 0;
}

// A thread's chunks of the next tile. begin() loads what they are made of, if that `waits` in registers
// while another tile is multiplied; end() computes them and stores them in the tile. Where the operand
// lies in memory, end() copies them.
template <class Operand, int rows, int width, int size, bool whole, int threads, class From>
struct ComingTokens {
  using Stored = typename Operand::stored;
  using Tile = TokenTile<Operand, rows, width>;
  using Chunks = ChunksOfThread<Tile, rows, threads>;
  using Raw = decltype(read_of<Operand>(*static_cast<const From*>(nullptr)));
  static constexpr int turns = Operand::computed ? Chunks::turns : 0;
  static constexpr int bytes = turns * sizeof(Raw);
  Raw raw[Chunks::turns];

  // Loads for `count` turns from `first_turn` on.
  template <int count>
  KILN_MEMBER void read(const From& from, int first, int tokens, int first_turn, int thread) {
    if constexpr (Operand::computed) {
      _Pragma("unroll") for (int i = 0; i < count; ++i) {
        const Chunks at(thread, first_turn + i);
        if (first_turn + i < turns && exists(at, first, tokens))
          raw[i] = from.read(first + at.row, at.chunk * LANES);
      }
    }
  }
  KILN_INLINE bool exists(const Chunks& at, int first, int tokens) {
    return at.exists && (whole || first + at.row < tokens) && at.chunk * LANES < size;
  }
  template <bool waits>
  KILN_MEMBER void begin(const From& from, int first, int tokens, int thread) {
    if constexpr (waits) read<turns>(from, first, tokens, 0, thread);
  }
  template <bool waits>
  KILN_MEMBER void end(const Operand& layout, const From& from, int first, int tokens, char* tile,
                       int thread) {
    if constexpr (Operand::computed) {
      static_assert(Tile::in_chunk == LANES && size % LANES == 0);
      constexpr int at_once = waits || turns < 4 ? turns : 4;
      _Pragma("unroll 1") for (int turn = 0; turn < turns; turn += at_once) {
        if (!waits) read<at_once>(from, first, tokens, turn, thread);
        _Pragma("unroll") for (int i = 0; i < at_once; ++i) {
          const Chunks at(thread, turn + i);
          Packed<Stored> made;
          made.clear();
          if (turn + i < turns && exists(at, first, tokens))
            made = pack<Stored>(from.of(raw[i], first + at.row, at.chunk * LANES));
          if (turn + i < turns && at.exists)
            store_words(tile + Tile::chunk_at(at.row, at.chunk), made.word);
        }
      }
    } else {
      fetch_tokens<Operand, rows, width, size, whole, threads>(layout, from, first, tokens, tile, thread);
      cp_async_commit();
      cp_async_wait<0>();
    }
  }
};

// How a tile of tokens is read: along a head, or, as the second product wants its values, across.
template <class T>
struct Along {
  using stored = T;
  static constexpr bool depth_inner = true;
};
template <class T>
struct Across {
  using stored = T;
  static constexpr bool depth_inner = false;
};

// ---- What lies in the registers of a matrix of scores as the first operand of a product. A lane
// has columns 2t and 2t + 1 of rows g and g + 8 of each 16 x 8 matrix, t = lane % 4, g = lane / 4.
template <class Core>
struct Weights;
template <>
struct Weights<MmaBf16> {
  KILN_INLINE float exponential(float x) { return quick_exp2(x * 0x1.715476p0f); }
  KILN_INLINE void take(MmaBf16::A& a, const float (*s)[4]) {
    _Pragma("unroll") for (int w = 0; w < 4; ++w)
      a.set(w, pack_bf16(s[w / 2][w % 2 * 2], s[w / 2][w % 2 * 2 + 1]));
  }
  template <class Tile>
  KILN_INLINE void values(unsigned (&x)[4], const char* tile, int column, int key) {
    load_fragment<Across<bf16>, Tile, false>(x, tile, column, key);
  }
};
template <>
struct Weights<MmaF16> {
  KILN_INLINE float exponential(float x) { return quick_exp2(x * 0x1.715476p0f); }
  KILN_INLINE void take(MmaF16::A& a, const float (*s)[4]) {
    _Pragma("unroll") for (int w = 0; w < 4; ++w)
      a.set(w, pack_f16(s[w / 2][w % 2 * 2], s[w / 2][w % 2 * 2 + 1]));
  }
  template <class Tile>
  KILN_INLINE void values(unsigned (&x)[4], const char* tile, int column, int key) {
    load_fragment<Across<f16>, Tile, false>(x, tile, column, key);
  }
};
// The product is over keys in the order 0, 2, 4, 6, 1, 3, 5, 7, in which the lanes have them.
template <>
struct Weights<MmaF32> {
  KILN_INLINE float exponential(float x) { return expf(x); }
  KILN_INLINE void take(MmaF32::A& a, const float (*s)[4]) {
    _Pragma("unroll") for (int w = 0; w < 4; ++w) a.set(w, as_bits(s[0][w % 2 * 2 + w / 2]));
  }
  template <class Tile>
  KILN_INLINE void values(unsigned (&x)[4], const char* tile, int column, int key) {
    const int lane = thread_index() % 32;
    _Pragma("unroll") for (int w = 0; w < 4; ++w) x[w] = *reinterpret_cast<const unsigned*>(
        tile + Tile::element_at(key + lane % 4 * 2 + w % 2, column + w / 2 * 8 + lane / 4));
  }
};

template <class Core>
struct Attention {
  using Stored = typename Query::stored;
  static constexpr int block_rows = Tiling::row_warps * 16;
  using QueryTile = TokenTile<Query, block_rows, Tiling::depth>;
  using KeyTile = TokenTile<Key, Tiling::keys, Tiling::depth>;
  using ValueTile = TokenTile<Value, Tiling::keys, Tiling::columns>;
  static constexpr int stage_bytes = KeyTile::bytes + ValueTile::bytes;
  static constexpr int used_depth = (Problem::depth + Core::depth - 1) / Core::depth * Core::depth;
  static constexpr int used_columns = (Problem::columns + 15) / 16 * 16;

  float score[Tiling::keys / 8][4];
  float sum[used_columns / 8][4];
  float greatest[2], total[2];  // of rows g and g + 8

  KILN_MEMBER void clear() {
    _Pragma("unroll") for (auto& matrix : sum)
      _Pragma("unroll") for (float& x : matrix) x = 0;
    _Pragma("unroll") for (int half = 0; half < 2; ++half) {
      greatest[half] = -infinity_f32();
      total[half] = 0;
    }
  }
  // This warp's first row among those of the block.
  KILN_INLINE int first_row() { return Tiling::row_warps == 1 ? 0 : thread_index() / 32 * 16; }

  KILN_INLINE void fetch_queries(const Problem& problem, const Stored* query, int row, char* shared) {
    fetch_tokens<Query, block_rows, Tiling::depth, Problem::depth, Problem::whole_rows,
                 Tiling::warps * 32>(problem.query, query, row, problem.rows, shared, thread_index());
  }
  // Keys and values of a tile, by so many threads.
  template <int threads, class Keys, class Values>
  KILN_INLINE void fetch(const Problem& problem, const Keys& key, const Values& value, int tile, int end,
                         char* stage, int thread) {
    if (tile * Tiling::keys < end) {
      fetch_tokens<Key, Tiling::keys, Tiling::depth, Problem::depth, Problem::whole_keys, threads>(
          problem.key, key, tile * Tiling::keys, problem.keys, stage, thread);
      fetch_tokens<Value, Tiling::keys, Tiling::columns, Problem::columns, Problem::whole_keys, threads>(
          problem.value, value, tile * Tiling::keys, problem.keys, stage + KeyTile::bytes, thread);
    }
    cp_async_commit();
  }

  // A tile of which keys, values or both are computed.
  template <int threads, class Keys, class Values>
  struct ComingTile {
    ComingTokens<Key, Tiling::keys, Tiling::depth, Problem::depth, Problem::whole_keys, threads, Keys> keys;
    ComingTokens<Value, Tiling::keys, Tiling::columns, Problem::columns, Problem::whole_keys, threads,
                 Values>
        values;
    // Whether what was loaded takes few enough registers to wait in: 32 of a thread.
    static constexpr bool waits = decltype(keys)::bytes + decltype(values)::bytes <= 128;

    KILN_MEMBER void begin(const Problem& problem, const Keys& key, const Values& value, int tile,
                           int thread) {
      keys.template begin<waits>(key, tile * Tiling::keys, problem.keys, thread);
      values.template begin<waits>(value, tile * Tiling::keys, problem.keys, thread);
    }
    KILN_MEMBER void end(const Problem& problem, const Keys& key, const Values& value, int tile,
                         char* stage, int thread) {
      keys.template end<waits>(problem.key, key, tile * Tiling::keys, problem.keys, stage, thread);
      values.template end<waits>(problem.value, value, tile * Tiling::keys, problem.keys,
                                 stage + KeyTile::bytes, thread);
    }
  };

  // score = query * key^T
  KILN_MEMBER void multiply_keys(const char* query, const char* key) {
    _Pragma("unroll") for (auto& matrix : score)
      _Pragma("unroll") for (float& x : matrix) x = 0;
    const int first = first_row();
    // Halves come all at once where registers are enough: chunks' places are constants then.
    constexpr int steps = used_depth / Core::depth;
    constexpr int at_once = sizeof(Stored) == 2 && Tiling::keys <= 64 && steps <= 4 ? steps : 1;
    _Pragma("unroll at_once") for (int depth = 0; depth < used_depth; depth += Core::depth) {
      typename Core::A a;
      unsigned x[4];
      load_fragment<Along<Stored>, QueryTile, true>(x, query, first, depth);
      _Pragma("unroll") for (int w = 0; w < 4; ++w) a.set(w, x[w]);
      _Pragma("unroll") for (int j = 0; j < Tiling::keys / 8; j += 2) {
        typename Core::B b[2];
        load_fragment<Along<Stored>, KeyTile, false>(x, key, j * 8, depth);
        _Pragma("unroll") for (int w = 0; w < 4; ++w) b[w / 2].set(w % 2, x[w]);
        Core::multiply(score[j], a, b[0]);
        Core::multiply(score[j + 1], a, b[1]);
      }
    }
  }

  // sum += score * value
  KILN_MEMBER void add_values(const char* value) {
    constexpr int matrices = Core::depth / 8;
    _Pragma("unroll") for (int k = 0; k < Tiling::keys / 8; k += matrices) {
      typename Core::A a;
      Weights<Core>::take(a, score + k);
      _Pragma("unroll") for (int j = 0; j < used_columns / 8; j += 2) {
        typename Core::B b[2];
        unsigned x[4];
        Weights<Core>::template values<ValueTile>(x, value, j * 8, k * 8);
        _Pragma("unroll") for (int w = 0; w < 4; ++w) b[w / 2].set(w % 2, x[w]);
        Core::multiply(sum[j], a, b[0]);
        Core::multiply(sum[j + 1], a, b[1]);
      }
    }
  }

  // Products become scores, where there are a row and a key; elsewhere -inf. There the last row's and
  // key's score is computed too: a branch around each would let its reads wait for those before it.
  template <class Score>
  KILN_MEMBER void finish_scores(const Problem& problem, int row, int key, const Score& scores) {
    const int lane = thread_index() % 32;
    row += first_row() + lane / 4;
    key += lane % 4 * 2;
    _Pragma("unroll") for (int j = 0; j < Tiling::keys / 8; ++j)
      _Pragma("unroll") for (int i = 0; i < 4; i += Problem::score_lanes) {
        const int at_row = row + i / 2 * 8, at_key = key + j * 8 + i % 2;
        const bool is_row = Problem::whole_rows || at_row < problem.rows;
        const bool is_key = Problem::whole_keys || at_key < problem.keys;
        constexpr int lanes = Problem::score_lanes;
        Vec<float> x = splat<Vec<float>>(score[j][i]);
        _Pragma("unroll") for (int l = 1; l < lanes; ++l) x[l] = score[j][i + l];
        x = scores(x, is_row ? at_row : problem.rows - 1, is_key ? at_key : problem.keys - lanes);
        _Pragma("unroll") for (int l = 0; l < lanes; ++l) score[j][i + l] =
            is_row && is_key ? x[l] : -infinity_f32();
      }
  }

  // Scores become weights; what was summed up before them is rescaled.
  KILN_MEMBER void weigh() {
    _Pragma("unroll") for (int half = 0; half < 2; ++half) {
      float most = greatest[half];
      _Pragma("unroll") for (auto& s : score)
        most = max_or_nan(most, max_or_nan(s[half * 2], s[half * 2 + 1]));
      most = max_or_nan(most, shuffle_xor(most, 1));
      most = max_or_nan(most, shuffle_xor(most, 2));
      // A row of nothing but -inf so far: its weights are exp(-inf) = 0.
      const float from = most == -infinity_f32() ? 0.0f : most;
      const float factor = Weights<Core>::exponential(greatest[half] - from);
      float added = 0;
      _Pragma("unroll") for (auto& s : score)
        _Pragma("unroll") for (int i = half * 2; i < half * 2 + 2; ++i) {
          s[i] = Weights<Core>::exponential(s[i] - from);
          added += s[i];
        }
      total[half] = total[half] * factor + added;  // of this lane's columns
      greatest[half] = most;
      _Pragma("unroll") for (auto& s : sum) {
        s[half * 2] *= factor;
        s[half * 2 + 1] *= factor;
      }
    }
  }

  // Weights that were halves are divided by their total, at least 1, to an f32's last places.
  KILN_INLINE float normalised(float sum, float total) {
    return sizeof(Stored) == 2 ? sum * quick_reciprocal(total) : sum / total;
  }
  KILN_INLINE float log_sum_of(const Problem& problem, float greatest, float total) {
    const float blind = problem.keys == 0 ? -infinity_f32() : nan_f32();
    return greatest == -infinity_f32() ? blind : logf(total) + greatest;
  }
  // What a row becomes that sees no key.
  KILN_INLINE float of_nothing(const Problem& problem) {
    return Problem::guarded || problem.keys == 0 ? 0.0f : nan_f32();
  }

  // From each lane's columns to those of the row.
  KILN_MEMBER void add_totals() {
    _Pragma("unroll") for (float& all : total) {
      all += shuffle_xor(all, 1);
      all += shuffle_xor(all, 2);
    }
  }

  template <class Finish, class LogSum>
  KILN_MEMBER void finish(const Problem& problem, int row, const Finish& store,
                          const LogSum& store_log_sum) {
    const int lane = thread_index() % 32;
    row += first_row() + lane / 4;
    add_totals();
    _Pragma("unroll") for (int half = 0; half < 2; ++half) {
      if (!Problem::has_log_sums || lane % 4 != 0 || row + half * 8 >= problem.rows) continue;
      store_log_sum(splat<vf32>(log_sum_of(problem, greatest[half], total[half])), row + half * 8);
    }
    _Pragma("unroll") for (int j = 0; j < used_columns / 8; ++j)
      _Pragma("unroll") for (int i = 0; i < 4; i += LANES) {
        const int half = i / 2, at_row = row + half * 8, column = j * 8 + lane % 4 * 2 + i % 2;
        if (at_row >= problem.rows || column >= Problem::columns) continue;
        const bool blind = greatest[half] == -infinity_f32();
        const float none = of_nothing(problem);
        Vec<float> x;
        KILN_EACH_LANE x[l] = blind                 ? none
                              : Problem::normalised ? normalised(sum[j][i + l], total[half])
                                                    : sum[j][i + l];
        store(x, splat<Vec<float>>(blind && !Problem::guarded ? none : total[half]), at_row, column);
      }
  }
};

// A block of query rows from `row` on.
template <class Core, class Score, class Within, class Finish, class LogSum>
KILN_INLINE void attend(const Problem& problem, const typename Query::stored* query,
                        const typename Query::stored* key, const typename Query::stored* value,
                        int row, char* shared, const Score& scores, const Within& within,
                        const Finish& store, const LogSum& store_log_sum) {
  using This = Attention<Core>;
  This state;
  state.clear();
  const SeenKeys seen(problem, row, This::block_rows);
  const auto stage_of = [&](int tile) {
    return shared + This::QueryTile::bytes + tile % Tiling::stages * This::stage_bytes;
  };
  const auto fetch = [&](int tile) {
    This::template fetch<Tiling::warps * 32>(problem, key, value, tile, seen.end, stage_of(tile),
                                             thread_index());
  };
  This::fetch_queries(problem, query, row, shared);
  _Pragma("unroll 1") for (int tile = 0; tile < Tiling::stages - 1; ++tile) fetch(seen.first_tile + tile);
  _Pragma("unroll 1") for (int tile = seen.first_tile; tile < seen.end_tile; ++tile) {
    fetch(tile + Tiling::stages - 1);
    cp_async_wait<Tiling::stages - 1>();
    block_barrier();
    const char* stage = stage_of(tile);
    state.multiply_keys(shared, stage);
    const int first = tile * Tiling::keys;
    if (shows_tile(problem, row, row + This::block_rows - 1, first))
      state.finish_scores(problem, row, first, within);
    else
      state.finish_scores(problem, row, first, scores);
    state.weigh();
    state.add_values(stage + This::KeyTile::bytes);
    block_barrier();
  }
  cp_async_wait<0>();
  state.finish(problem, row, store, store_log_sum);
}

}  // namespace
