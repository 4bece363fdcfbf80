// How rows of wgmma_attention_rows.cuh end where results are halves that are stored as they are:
// registers become boxes of 16 rows and 64 columns where the warpgroup's queries were, which the copy
// engine stores; boxes_are_stored() waits for them. A box is laid out as the copy engine has it: pieces
// of 16 bytes of rows of 128 are exchanged over 8 rows.
//
// In front of it the generated source defines
//   struct Out   store(from, row, column, batch)
namespace {

KILN_INLINE void store_boxes(const Rows& rows, char* query, const Out& out, int row, int batch) {
  constexpr int pieces = Tiling::columns / 8;
  const int lane = thread_index() % 32, first = thread_index() % 128 / 32 * 16;
  // Lane 8i + r names row r of matrix i, of which two lie above one another, then the next two.
  const int matrix_row = lane / 8 % 2 * 8 + lane % 8, matrix_piece = lane / 16;
  _Pragma("unroll") for (int box = 0; box < Tiling::room / 64; ++box) {
    char* const from = query + box * (Tiling::query_rows * 128) + first * 128;
    _Pragma("unroll") for (int j = box * 8; j < box * 8 + 8 && j < pieces; j += 2) {
      unsigned words[4] = {};
      _Pragma("unroll") for (int i = 0; i < 4; ++i)
        if (j + i / 2 < pieces)
          words[i] = pack_pair(static_cast<const Query::stored*>(nullptr), rows.sum[j * 4 + i * 2],
                               rows.sum[j * 4 + i * 2 + 1]);
      stmatrix_x4(from + matrix_row * 128 + ((j % 8 + matrix_piece ^ matrix_row % 8) << 4), words);
    }
  }
  boxes_are_written();
  warp_barrier();
  if (lane > 0) return;
  _Pragma("unroll") for (int box = 0; box < Tiling::room / 64; ++box)
      out.store(query + box * (Tiling::query_rows * 128) + first * 128, row + first, box * 64, batch);
  boxes_commit();
}

}  // namespace
