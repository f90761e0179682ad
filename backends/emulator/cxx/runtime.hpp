// The state of a launch, of which the runtime's parts share one: launches of a unit run one at a time.
#pragma once

#include "interface.hpp"

namespace emulated {

// When a thread of the current launch did something: the epoch, which every barrier and every block begins anew, then
// how often the thread's warp has synchronised within the epoch, then the thread. Zero is never.
typedef Word Moment;

inline unsigned epoch_of(Moment m) { return (unsigned)(m >> 32); }
inline unsigned thread_of(Moment m) { return (unsigned)(m & 1023); }
inline unsigned warp_of(Moment m) { return thread_of(m) / 32; }
inline unsigned warp_epoch_of(Moment m) { return (unsigned)(m >> 10 & 0x3fffff); }

struct State {
    const char* function;
    Request request;
    // The current block and thread, as numbers.
    Word block;
    unsigned thread;
    Moment now;
    // The epoch that the current block began with, and the ones that all blocks so far began with, from the first one that runs on.
    unsigned first_epoch;
    unsigned* first_epochs;
    // The phase of this pass over the blocks, and whether there is a later one.
    unsigned phase;
    bool has_more;
    bool failed;
    char message[1024];
};

extern State state;

inline bool of_this_block(Moment m) { return epoch_of(m) >= state.first_epoch; }

// Records the message, unless there is one.
void record(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Where a block is in the grid, as text.
const char* block_name(Word block);

// The block in which something happened.
Word block_at(Moment m);

// A record for so many cells, all empty; freed with `free`.
Cell* new_cells(Word count);

// The bytes of a parameter, as memory. Parameters whose bytes overlap share a record. False: the message is recorded.
bool bind(const Parameter* parameters, unsigned count, Memory* memories);
void unbind();

// Forgets who accessed parameters: all of it comes before what follows.
void forget_parameters();

// Makes elements ones that were never written.
void invalidate(const Memory& memory, long long at, unsigned bytes);

// Forgets what a block sees of others that came to a number before it.
void forget_seen();

// Forgets the copies of a block's threads.
void forget_copies();

// An element in shared memory that a product by a warpgroup is to read, or has read.
const void* read_by_product(unsigned address, unsigned bytes, bool has_read);

// Notes a barrier of all threads: what they fenced before is behind it.
void settle_writes();

// Forgets the products of a block's warps; whether those of each warpgroup did the same so far, else records that they did not.
void forget_products();
bool are_warpgroups_alike();

// Forgets shared arrays, or only what is in them.
void drop_shared();
void forget_shared();

}  // namespace emulated
