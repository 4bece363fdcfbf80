// Which keys a mask of places shows to rows. In front of it the generated source defines struct Problem
// (rows, keys; has_reach, reach, has_past, past, has_within: see MaskBounds) and Tiling::keys, the
// keys of a tile.
namespace {

// The keys that some of the rows from `row` on see, `rows` of them at most: all others are hidden from each.
struct SeenKeys {
  int end;                   // a key
  int first_tile, end_tile;  // the same where there is no key
  KILN_MEMBER SeenKeys(const Problem& problem, int row, int rows) {
    const int last = row + rows < problem.rows ? row + rows : problem.rows;
    const int seen = last + problem.reach;
    end = !Problem::has_reach || seen > problem.keys ? problem.keys : seen;
    first_tile = Problem::has_past && row > problem.past ? (row - problem.past) / Tiling::keys : 0;
    end_tile = end > 0 ? (end + Tiling::keys - 1) / Tiling::keys : 0;
    if (end_tile < first_tile) end_tile = first_tile;
  }
};

// Whether the mask, which says nothing else, shows all keys of the tile from `key` on to all of these rows.
KILN_INLINE bool shows_tile(const Problem& problem, int first_row, int last_row, int key) {
  return Problem::has_within &&
         (!Problem::has_reach || key + Tiling::keys - 1 <= first_row + problem.reach) &&
         (!Problem::has_past || key >= last_row - problem.past);
}

}  // namespace
