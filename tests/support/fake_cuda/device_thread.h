// What a kernel that runs on the CPU and the engine that runs it know of each other. Included by
// the engine and, through cuda_shim.h, by every generated source, so it includes nothing.
//
// A compiled source is a shared object that exports one symbol, kiln_fake_module.
#pragma once
#line 7 "device_thread.h"

namespace kiln_fake {

// Why a thread stops until others have come as far. kPhase: it looks again at a barrier in shared
// memory whenever a phase of one has ended.
enum class Meeting : int { kNone, kWarp, kShuffle, kMatrix, kBlock, kCluster, kPhase };

enum class FaultKind : int { kIllegalAddress, kMisaligned, kLaunchFailed };

inline constexpr int kWarpThreads = 32;
inline constexpr int kExchangeWords = 12;  // a lane shows to its warp at one meeting
inline constexpr int kNumberedBarriers = 16;
inline constexpr int kMostWarpgroups = 8;  // of a block

// A barrier of a block that goes by a number.
struct NumberedBarrier {
  int arrived, phase;
};

// Bytes that kernels in front may still write.
struct Unready {
  const char *begin, *end;
};

struct Thread {
  int index;  // in its block
  unsigned block, blocks;
  int rank, cluster_size;  // of its block in its cluster
  char* shared;            // of its block; shared[-1] and below are not its own
  int shared_bytes;
  Thread* warp;     // lane 0 of its warp; the lanes lie side by side
  int warp_lanes;   // less than 32 in the last warp of an odd block
  Thread* cluster;  // thread 0 of block 0 of the cluster
  int block_threads;
  bool ended;
  bool has_begun;          // and its cluster knows
  bool waited;             // for the kernel in front of this one
  const Unready* unready;  // until then
  int unready_count;
  // The block's, in its thread 0: those that kernels number, and one for each warpgroup to meet at.
  NumberedBarrier numbered[kNumberedBarriers + kMostWarpgroups];
  int registers;  // that threads of the block asked for, likewise
  // What this lane shows to its warp. Consecutive meetings take turns, so one meeting an exchange
  // is enough: nobody writes a half again before all have read it.
  int turn;
  alignas(16) unsigned exchange[2][kExchangeWords];
  // Returns when all have come. One that does not get there ends the launch with an error.
  void (*meet)(Meeting);
  long* phases;  // of barriers in shared memory that have ended, in this launch
  // An asynchronous copy into `size` bytes: `bytes` of them from `global`, the rest zeros.
  void (*copy_later)(void* shared, const void* global, int bytes, int size);
  void (*commit_copies)();
  void (*finish_copies)(int groups_left);  // -1: also those that no commit has put in a group
  // A box that the copy engine stores: `copy` is called when the thread waits for its group, which
  // may be long after the kernel has begun to write there again.
  void (*box_later)(const struct TensorMap* map, const char* from, const int* at,
                    void (*copy)(const struct TensorMap&, const char*, const int*));
  void (*commit_boxes)();
  void (*finish_boxes)(int groups_left);
  // Ends the launch. Does not return. `line` is of the source; 0: unknown.
  void (*fault)(FaultKind, const char* message, const void* address, unsigned line);
};

// What the fake driver encodes into the 128 bytes of a CUtensorMap: its arguments as they were.
struct alignas(128) TensorMap {
  char* address;
  unsigned long strides[4];  // bytes
  unsigned sizes[5];
  unsigned short box[5], channels, pixels;
  unsigned char element_strides[5], rank, dtype, interleave, swizzle, promotion, fill, is_im2col;
  short lower[3], upper[3];
};
static_assert(sizeof(TensorMap) == 128);

struct Entry {
  const char* name;
  void (*call)(void* const* parameters);  // each points at its value
  int parameter_count;
  int max_threads;             // __launch_bounds__; 0: none given
  const int* parameter_bytes;  // 8 each, or 128 for a tensor map
};

struct Module {
  const char* architecture;  // "sm_90a"
  const Entry* entries;
  int entry_count;
  // Which device thread the code is running as; set by the engine before it lets a thread run. One
  // launch runs at a time in a process.
  Thread** current;
};

}  // namespace kiln_fake
